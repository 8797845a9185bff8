using Grpc.Core;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>A stream of messages from a node to the library. Its reader goes on in the step that brings a message or the end.</summary>
internal sealed class HostileStream<T> : IAsyncStreamReader<T>
    where T : class
{
    private readonly Queue<T> _arrived = new();
    private TaskCompletionSource<bool>? _waiting;
    private RpcException? _failure;
    private T? _current;

    public T Current => _current ?? throw new InvalidOperationException("Nothing has been read.");

    public bool HasEnded { get; private set; }

    /// <summary>Called with each message that the library reads.</summary>
    public Action Read { get; init; } = static () => { };

    public Task<bool> MoveNext(CancellationToken cancellationToken)
    {
        if (_arrived.TryDequeue(out var next))
        {
            _current = next;
            Read();
            return Task.FromResult(true);
        }
        _waiting = new TaskCompletionSource<bool>();
        if (HasEnded)
            TellEnd(_waiting);
        return _waiting.Task;
    }

    public void Arrive(T message)
    {
        if (HasEnded)
            return;
        if (_waiting is not { Task.IsCompleted: false } waiting)
        {
            _arrived.Enqueue(message);
            return;
        }
        _current = message;
        Read();
        waiting.SetResult(true);
    }

    /// <param name="failure">Null: it ends as it should.</param>
    public void End(RpcException? failure)
    {
        if (HasEnded)
            return;
        (HasEnded, _failure) = (true, failure);
        if (_waiting is { Task.IsCompleted: false } waiting)
            TellEnd(waiting);
    }

    private void TellEnd(TaskCompletionSource<bool> waiting)
    {
        if (_failure is null)
            waiting.SetResult(false);
        else
            waiting.SetException(_failure);
    }
}
