// The open calls of a server, from their headers until they are returned to Kestrel: those being served, those that wait, and those whose request has not
// arrived. Each costs some kilobytes of Kestrel's and our memory, whatever the size of its messages. Any thread, without a lock.
using Grpc.Core;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>
/// Limits the number of open calls, fairly by connection. Half of the places is available to all. Of the next quarter a connection gets at most its share,
/// which is the number of places divided by the number of connections with calls, and at least <see cref="SharePlacesMin"/>. The last quarter is for
/// connections without a call. Added to the services of a host that wants limits; without it there are none.
/// </summary>
/// <param name="callsMax">The number of places.</param>
/// <param name="refusal">The error of a call without a place.</param>
internal sealed class OpenCallLimit(int callsMax, RpcException refusal)
{
    /// <summary>A caller can always make a few calls at a time, however many connections there are.</summary>
    public const int SharePlacesMin = 4;

    /// <summary>
    /// The number of refusals in a row after which a connection gets a GOAWAY. Every stream costs something before it is refused, and this is a quarter of what
    /// a connection may have at a time. A caller that waits before it tries again reaches it too, if streams hold the places of its connection. These streams
    /// and every other call with a place are unaffected; only new calls need another connection.
    /// </summary>
    public const int RefusedInRowMax = 256;

    /// <summary>
    /// The number of refusals in a row after which a connection is aborted, because it continued after the GOAWAY. A caller that obeys may have sent
    /// 1,024 calls before the GOAWAY is written and 2,048 before it arrives: those that are open then, and one for each answer in transit.
    /// </summary>
    public const int RefusedInRowEnd = RefusedInRowMax + 4_096;

    private readonly int _forAll = callsMax / 2;
    private readonly int _forShares = callsMax - (callsMax / 4);
    private readonly string _status = StatusText.Of(refusal.StatusCode);
    private readonly string _message = StatusMessage.Encode(refusal.Status.Detail);
    private readonly (string Name, string Value)[] _details = [.. refusal.Trailers.Select(entry => (entry.Key, HeaderValue.Of(entry)))];
    private int _taken;
    private int _connections;
    private long _refused;
    private long _gone;

    /// <summary>Number of places taken.</summary>
    public int Taken => Volatile.Read(ref _taken);

    /// <summary>Number of calls refused so far.</summary>
    public long Refused => Interlocked.Read(ref _refused);

    /// <summary>Number of calls so far that were not begun because their caller went away or their deadline passed while their request arrived.</summary>
    public long Gone => Interlocked.Read(ref _gone);

    /// <summary>Takes a place for a call of a connection.</summary>
    public bool TryTake(ConnectionCalls connection)
    {
        var taken = Interlocked.Increment(ref _taken);
        var ofConnection = Interlocked.Increment(ref connection.Open);
        if (ofConnection == 1)
            Interlocked.Increment(ref _connections);
        if (taken <= _forAll || ofConnection <= MostAt(taken))
        {
            // Read first, because calls of one connection run on all cores and share the cache line.
            if (Volatile.Read(ref connection.RefusedInRow) != 0)
                Volatile.Write(ref connection.RefusedInRow, 0);
            return true;
        }
        Return(connection);
        return false;
    }

    /// <summary>Returns a place.</summary>
    public void Return(ConnectionCalls connection)
    {
        if (Interlocked.Decrement(ref connection.Open) == 0)
            Interlocked.Decrement(ref _connections);
        Interlocked.Decrement(ref _taken);
    }

    /// <summary>Counts a call in <see cref="Gone"/>.</summary>
    public void NoteGone() => Interlocked.Increment(ref _gone);

    /// <summary>
    /// Answers a call without a place, with headers only. If a part of the request is still to come, Kestrel ends it.
    /// </summary>
    /// <returns>What to do with its connection.</returns>
    public ConnectionFate Refuse(ConnectionCalls connection, IHttpResponseFeature response)
    {
        Interlocked.Increment(ref _refused);
        var headers = response.Headers;
        headers.ContentType = "application/grpc";
        headers.GrpcStatus = _status;
        headers.GrpcMessage = _message;
        foreach (var (name, value) in _details)
            headers[name] = value;
        return Interlocked.Increment(ref connection.RefusedInRow) switch
        {
            RefusedInRowMax => ConnectionFate.TakesNoMore,
            RefusedInRowEnd => ConnectionFate.Ends,
            _ => ConnectionFate.GoesOn,
        };
    }

    // How many calls a connection may have, including the new one, if this many places are taken, including its own.
    private int MostAt(int taken) =>
        taken > callsMax ? 0
        : taken > _forShares ? 1
        : Math.Max(SharePlacesMin, callsMax / Math.Max(1, Volatile.Read(ref _connections)));
}

/// <summary>What to do with a connection.</summary>
internal enum ConnectionFate
{
    GoesOn,

    /// <summary>Its calls are unaffected, but it must start no others.</summary>
    TakesNoMore,

    /// <summary>It is aborted.</summary>
    Ends,
}

/// <summary>The open calls of one connection: a feature of the connection, which the listener sets.</summary>
internal sealed class ConnectionCalls
{
    /// <summary>Counted by <see cref="OpenCallLimit"/> with atomic operations.</summary>
    internal int Open;

    /// <summary>Calls refused since the last one that got a place, counted in the same way.</summary>
    internal int RefusedInRow;
}
