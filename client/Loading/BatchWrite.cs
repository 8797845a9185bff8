using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Sessions;
using KvCluster.Client.Transport;
using KvCluster.V1;
using Method = KvCluster.V1.Method;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Loading;

/// <summary>
/// One batch as a Write, which call after call sends under one identity until its outcome is known. So a batch whose answer was lost is never applied again,
/// over what another client has written since. Used by one thread at a time; disposal settles the identity.
/// </summary>
/// <param name="calls">Sends it.</param>
/// <param name="sessions">Gives it its identity. Null: it has none, and is not sent again once it may have been applied.</param>
/// <param name="puts">The batch.</param>
internal sealed class BatchWrite(CallRouter calls, ClientSessions? sessions, PutBatch puts) : IDisposable
{
    private RequestTicket? _ticket;
    private ByteString? _request;
    private Status? _unknown;

    /// <summary>The position after the batch, when it was applied.</summary>
    public Position? Position { get; private set; }

    /// <summary>Whether the last call failed in a way that another one may not.</summary>
    public bool MayRepeat { get; private set; }

    /// <summary>Whether some call may have applied it.</summary>
    public bool MayBeApplied => _unknown is not null;

    /// <summary>Makes one call, which takes no longer than the client's calls may.</summary>
    /// <returns>Null if the batch is applied, by this call or an earlier one. Otherwise why not, or that it is not known.</returns>
    public async Task<Status?> SendAsync(CancellationToken cancellationToken)
    {
        var deadlineMs = calls.DeadlineFromNow();
        while (true)
        {
            if (await IdentifyAsync(deadlineMs, cancellationToken).ConfigureAwait(false) is { } refused)
                return Judge(refused);
            var isIdentified = _ticket is not null;
            var reply = await calls.CallAsync(Method.Write, puts.FirstKey, _request!, deadlineMs, cancellationToken, isIdentified).ConfigureAwait(false);
            if (reply.Error is not { } error)
            {
                Position = WriteResponse.Parser.ParseFrom(reply.Response).Position;
                return null;
            }
            if (_ticket is { } ticket && (CallStatus.IsSessionExpired(error) || CallStatus.IsLineageChanged(error)))
                ticket.Sessions.Drop(ticket.Session);
            if (!CallStatus.IsSessionExpired(error) || MayBeApplied)
                return Judge(error);
            // No call has executed it, so it can be written under a new identity. The shard has answered, so nothing sends the request any more, whose memory
            // the new one takes.
            Dispose();
        }
    }

    public void Dispose()
    {
        _ticket?.Settle();
        (_ticket, _request) = (null, null);
    }

    private async ValueTask<Status?> IdentifyAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        if (_request is not null)
            return null;
        if (sessions is null)
        {
            _request = puts.Request;
            return null;
        }
        var (ticket, error) = await sessions.TakeAsync(puts.FirstKey, deadlineMs, cancellationToken).ConfigureAwait(false);
        if (error is not null)
            return error;
        (_ticket, _request) = (ticket, ticket.Encode(puts));
        return null;
    }

    // After a call of unknown outcome only a recorded result settles it. A later refusal says nothing of that call.
    private Status Judge(Status error)
    {
        var isRefused = CallStatus.IsNotExecuted(error);
        if (!isRefused && CallStatus.IsUnknown(error))
            _unknown = error;
        MayRepeat = !isRefused && (CallStatus.IsUnknown(error)
            ? _ticket is not null
            : (StatusCode)error.Code is StatusCode.Unavailable or StatusCode.DeadlineExceeded);
        return CallStatus.IsLineageChanged(error) ? error : _unknown ?? error;
    }
}
