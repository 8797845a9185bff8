using System.Diagnostics.CodeAnalysis;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls of one connection that wait to be sent or for a reply, by id. A fixed number of places; an id is a place with a running
/// number, so that a late reply to an older call of the place finds nothing. Thread-safe.
/// </summary>
internal sealed class OpenCalls : IDisposable
{
    private const int PlaceBits = 16;
    private readonly Lock _lock = new();
    private readonly PendingCall?[] _calls;
    private readonly ulong[] _ids;
    private readonly Stack<int> _free;
    private readonly SemaphoreSlim _places;
    private ulong _number;

    public OpenCalls(int capacity)
    {
        ArgumentOutOfRangeException.ThrowIfGreaterThan(capacity, 1 << PlaceBits);
        _calls = new PendingCall?[capacity];
        _ids = new ulong[capacity];
        _free = new Stack<int>(Enumerable.Range(0, capacity).Reverse());
        _places = new SemaphoreSlim(capacity, capacity);
    }

    /// <summary>Reserves a place for <see cref="Add"/> if one is free.</summary>
    public bool TryTakePlace() => _places.Wait(0);

    /// <summary>Waits until a place is free and reserves it. False: the time is up.</summary>
    public Task<bool> TakePlaceAsync(long deadlineMs, CancellationToken cancellationToken) =>
        _places.WaitAsync((int)Math.Clamp(deadlineMs - Environment.TickCount64, 0, int.MaxValue), cancellationToken);

    /// <summary>Puts the call in a place reserved before, and gives its id.</summary>
    public ulong Add(PendingCall call)
    {
        lock (_lock)
        {
            var place = _free.Pop();
            _calls[place] = call;
            return _ids[place] = (++_number << PlaceBits) | (uint)place;
        }
    }

    /// <summary>Counts the call as sent. False: it was answered before, by its deadline.</summary>
    public bool TrySend(ulong id, [NotNullWhen(true)] out PendingCall? call)
    {
        var place = PlaceOf(id);
        lock (_lock)
        {
            call = _ids[place] == id ? _calls[place] : null;
            if (call is not null)
                call.Sent = true;
            return call is not null;
        }
    }

    /// <summary>Answers the call that the reply is for; a reply to an older one is passed over.</summary>
    public void Complete(Reply reply) => Take(reply.Id)?.Complete(new CallAnswer(reply, true, null, false));

    /// <summary>Answers the calls whose deadline has passed.</summary>
    public void Expire(long nowMs)
    {
        for (var place = 0; place < _calls.Length; place++)
        {
            // The id first: if the place changes hands in between, taking by the old id finds nothing.
            var id = Volatile.Read(ref _ids[place]);
            if (Volatile.Read(ref _calls[place]) is { } call && call.DeadlineMs <= nowMs && Take(id) is { } expired)
                expired.Complete(new CallAnswer(null, expired.Sent, "no answer in time", true));
        }
    }

    /// <summary>The stream never reached the node: none of its calls did.</summary>
    public void MarkUnsent()
    {
        lock (_lock)
        {
            foreach (var call in _calls)
            {
                if (call is not null)
                    call.Sent = false;
            }
        }
    }

    /// <summary>The stream broke: nothing will be answered any more.</summary>
    public void FailAll(string failure)
    {
        for (var place = 0; place < _calls.Length; place++)
        {
            if (Take(Volatile.Read(ref _ids[place])) is { } call)
                call.Complete(new CallAnswer(null, call.Sent, failure, false));
        }
    }

    public void Dispose() => _places.Dispose();

    private static int PlaceOf(ulong id) => (int)(id & ((1 << PlaceBits) - 1));

    private PendingCall? Take(ulong id)
    {
        var place = PlaceOf(id);
        lock (_lock)
        {
            if (place >= _calls.Length || _ids[place] != id || _calls[place] is not { } call)
                return null;
            _calls[place] = null;
            _free.Push(place);
            _places.Release();
            return call;
        }
    }
}
