using System.Text;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.Telemetry;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>
/// One call of an exchange until its reply. Pooled by its <see cref="ExchangeProxy"/> and used under the exchange's lock, except for its token and its room.
/// </summary>
internal sealed class ExchangeCall(ReplyBudget replies) : IReplyRoom
{
    private readonly CancellationTokenSource _givenUp = new();
    private LinkedListNode<ExchangeCall>? _turn;

    /// <summary>Chosen by the caller.</summary>
    public ulong Id { get; private set; }

    /// <summary>The encoded request, a copy.</summary>
    public ByteString Request { get; private set; } = ByteString.Empty;

    /// <summary>Its method, and where it goes.</summary>
    public RequestRoute Route { get; private set; }

    /// <summary>The caller's span; empty if there is none or spans are not recorded.</summary>
    public string Traceparent { get; private set; } = "";

    /// <summary>The time that the caller allows; 0 if it does not say.</summary>
    public uint TimeoutMs { get; private set; }

    /// <summary><see cref="Environment.TickCount64"/> when its message arrived.</summary>
    public long ArrivedMs { get; private set; }

    public CallPlace Place { get; private set; }

    /// <summary>Cancelled when nobody waits for the reply any more.</summary>
    public CancellationToken Token { get; private set; }

    /// <summary>Whether it is a read, whose reply may be large.</summary>
    public bool IsRead => Route.Method.IsRead();

    /// <summary>For a read: the reads of its shard.</summary>
    public ReadsInFlight.OfShard? Reads { get; set; }

    /// <summary>For a read: its node in the list of waiting reads; in no list if it does not wait.</summary>
    public LinkedListNode<ExchangeCall> Turn => _turn ??= new LinkedListNode<ExchangeCall>(this);

    /// <summary>Whether it is a read that waits to be sent.</summary>
    public bool IsWaiting => _turn?.List is not null;

    /// <summary>The room that <see cref="ReplyBudget"/> keeps for its reply.</summary>
    public int HeldBytes { get; set; }

    /// <param name="call">Its bytes are copied.</param>
    /// <param name="route">Its method, and where it goes.</param>
    /// <param name="arrivedMs">When its message arrived.</param>
    /// <param name="place">Its place, which is returned when it has ended.</param>
    /// <param name="other">A token that replaces the call's own, if that cannot be found by the call's id.</param>
    public void Begin(scoped in CallHead call, in RequestRoute route, long arrivedMs, in CallPlace place, CancellationToken? other)
    {
        (Id, Route, TimeoutMs, ArrivedMs, Place) = (call.Id, route, call.TimeoutMs, arrivedMs, place);
        Request = ByteString.CopyFrom(call.Request);
        Traceparent = call.Traceparent.Length == Spans.HeaderLength && RouterMetrics.TakesSpans ? Encoding.ASCII.GetString(call.Traceparent) : "";
        Token = other ?? _givenUp.Token;
    }

    /// <summary>Cancels the call, because its caller does not wait any more. Continuations run on other threads.</summary>
    public void GiveUp() => _ = _givenUp.CancelAsync();

    /// <summary>Clears the call for reuse. Returns false if its token was cancelled, so that it cannot be reused.</summary>
    public bool TryReset()
    {
        (Request, Route, Reads) = (ByteString.Empty, default, null);
        return _givenUp.TryReset();
    }

    /// <summary>The reply to a call that its caller has cancelled.</summary>
    public RoutedReply Cancelled() => new(ByteString.Empty, IsRead
        ? CallStatus.Create(StatusCode.Cancelled, "CANCELLED", "The caller cancelled the call.", StatusDetails.NotApplied)
        : CallStatus.OutcomeUnknown("its caller cancelled the call"));

    /// <summary>The reply to a call that has met a bug of the router. A node may have been asked before.</summary>
    public RoutedReply Failed(Exception failure)
    {
        var what = $"the router failed with {failure.GetType().Name}; see its log";
        return new(ByteString.Empty, IsRead
            ? CallStatus.Create(StatusCode.Internal, "INTERNAL", $"The read has no answer: {what}.", StatusDetails.NotApplied)
            : CallStatus.OutcomeUnknown(what));
    }

    public ValueTask<bool> HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken) =>
        replies.HoldAsync(this, bytes, deadlineMs, cancellationToken);

    public void Release() => replies.Release(this);

    // A reply for which the process has no room is dropped when it arrives.
    public bool MayRespond(int bytes) => true;
}
