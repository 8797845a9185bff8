// The calls of a server that are open, from their headers until they are handed back to Kestrel: those that are served, those that wait, and those whose request
// has not come. Each costs some kilobytes of Kestrel's and ours, whatever its messages have. Any thread, without a lock.
using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// Bounds them, fairly by connection. Half of the places is for whoever comes. Of the next quarter a connection gets no more than its share, which is the places
/// divided by the connections that have calls, and at least <see cref="SharePlacesMin"/>. The last quarter is for connections without a call. A service of a host that
/// wants bounds; without it there are none.
/// </summary>
/// <param name="callsMax">Places.</param>
/// <param name="refusal">What a call without a place ends with.</param>
internal sealed class OpenCalls(int callsMax, RpcException refusal)
{
    /// <summary>A caller goes on with a few calls at a time, however many connections there are.</summary>
    public const int SharePlacesMin = 4;

    /// <summary>
    /// A connection gets a GOAWAY at so many refusals in a row. Every stream costs before it is refused, and this is as many as a connection may have at a time. Also a caller that waits before it
    /// tries again gets there, where the places of its connection are held by streams: those stay, and so does every call that has a place; only new calls need another connection.
    /// </summary>
    public const int RefusedInRowMax = 256;

    /// <summary>
    /// A connection is broken off at so many: it goes on after the GOAWAY. A caller that listens may have sent 256 before the GOAWAY is written, and 512 before it comes: those that are open then, and
    /// one for each answer on its way.
    /// </summary>
    public const int RefusedInRowEnd = RefusedInRowMax + 1_024;

    private readonly int _forAll = callsMax / 2;
    private readonly int _forShares = callsMax - (callsMax / 4);
    private readonly string _status = StatusText.Of(refusal.StatusCode);
    private readonly string _message = StatusMessage.Encode(refusal.Status.Detail);
    private readonly (string Name, string Value)[] _details = [.. refusal.Trailers.Select(entry => (entry.Key, BinaryHeader.Format(entry)))];
    private int _taken;
    private int _connections;
    private long _refused;

    /// <summary>Places taken.</summary>
    public int Taken => Volatile.Read(ref _taken);

    /// <summary>Calls that found no place, so far.</summary>
    public long Refused => Interlocked.Read(ref _refused);

    /// <summary>Takes a place for a call of a connection.</summary>
    public bool TryTake(ConnectionCalls connection)
    {
        var taken = Interlocked.Increment(ref _taken);
        var ofConnection = Interlocked.Increment(ref connection.Open);
        if (ofConnection == 1)
            Interlocked.Increment(ref _connections);
        if (taken <= _forAll || ofConnection <= MostAt(taken))
        {
            // Read first: calls of one connection end up on all cores, and the line is shared.
            if (Volatile.Read(ref connection.RefusedInRow) != 0)
                Volatile.Write(ref connection.RefusedInRow, 0);
            return true;
        }
        Return(connection);
        return false;
    }

    /// <summary>Gives a place back.</summary>
    public void Return(ConnectionCalls connection)
    {
        if (Interlocked.Decrement(ref connection.Open) == 0)
            Interlocked.Decrement(ref _connections);
        Interlocked.Decrement(ref _taken);
    }

    /// <summary>
    /// Answers a call without a place, by its headers alone; a request of which a part is still to come is ended by Kestrel.
    /// </summary>
    /// <returns>What its connection has come to.</returns>
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

    // How many calls a connection may have, with the one that asks, where so many places are taken with its own.
    private int MostAt(int taken) =>
        taken > callsMax ? 0
        : taken > _forShares ? 1
        : Math.Max(SharePlacesMin, callsMax / Math.Max(1, Volatile.Read(ref _connections)));
}

/// <summary>What becomes of a connection.</summary>
internal enum ConnectionFate
{
    GoesOn,

    /// <summary>Its calls go on; it is to begin no others.</summary>
    TakesNoMore,

    /// <summary>It is broken off.</summary>
    Ends,
}
