using System.Diagnostics.CodeAnalysis;

namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <summary>In place of the framework's type of that name in the engine under a <see cref="Schedule"/>: each call is one step.</summary>
internal sealed class ConcurrentQueue<T>
{
    private readonly Queue<T> _items = new();

    public bool IsEmpty => Count == 0;

    public int Count
    {
        get
        {
            Schedule.BeforeAccess();
            return _items.Count;
        }
    }

    public void Enqueue(T item)
    {
        Schedule.BeforeAccess();
        _items.Enqueue(item);
    }

    public bool TryDequeue([MaybeNullWhen(false)] out T item)
    {
        Schedule.BeforeAccess();
        return _items.TryDequeue(out item);
    }

    public bool TryPeek([MaybeNullWhen(false)] out T item)
    {
        Schedule.BeforeAccess();
        return _items.TryPeek(out item);
    }
}
