using System.Text;
using Google.Rpc;
using Grpc.Core;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>Converts the statuses of calls to the exceptions that users see.</summary>
internal static class KvErrors
{
    /// <summary>Reads the next message of a stream; false at its end.</summary>
    /// <exception cref="KvException">The stream failed.</exception>
    public static async ValueTask<bool> MoveNextAsync<T>(IAsyncEnumerator<T> messages, CancellationToken cancellationToken)
    {
        try
        {
            return await messages.MoveNextAsync().ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw ToException(failure, cancellationToken);
        }
    }

    public static KvException ToException(Status status)
    {
        var info = StatusDetails.InfoOf(status);
        if (CallStatus.IsLineageChanged(status))
            return new KvLineageChangedException(status.Message, CallStatus.IsUnknown(status) ? ChangeOutcome.Unknown : ChangeOutcome.NotApplied);
        if (CallStatus.IsUnknown(status))
            return new KvOutcomeUnknownException(status.Message);
        var reason = CallStatus.ReasonOf(status);
        return (StatusCode)status.Code switch
        {
            StatusCode.FailedPrecondition when reason == KvReasons.ConditionFailed => ConditionFailed(status.Message, info),
            StatusCode.FailedPrecondition when reason == KvReasons.ShardsDiffer => new KvShardsDifferException(status.Message, ShardsIn(status)),
            StatusCode.FailedPrecondition when reason == KvReasons.NoOwner => new KvNoOwnerException(status.Message),
            StatusCode.Aborted when reason == KvReasons.SnapshotTooOld => new KvSnapshotTooOldException(status.Message),
            StatusCode.Unavailable or StatusCode.DeadlineExceeded => Unavailable(reason, status),
            StatusCode.OutOfRange when reason == KvReasons.Compacted =>
                new KvCompactedException(status.Message, StatusDetails.CompactedOf(status)?.Oldest.ToPosition() ?? default),
            StatusCode.InvalidArgument => new KvInvalidRequestException(reason, status.Message),
            _ => new KvException(reason, status.Message),
        };
    }

    /// <summary>
    /// Converts the failure of a stream, which changes nothing, or of an operator call whose outcome was judged. If the caller stopped waiting, it returns a
    /// cancellation.
    /// </summary>
    /// <param name="failure">The failure.</param>
    /// <param name="cancellationToken">The caller's.</param>
    /// <param name="lastKey">Of a scan: the key up to which entries were returned; empty if there was none.</param>
    public static Exception ToException(RpcException failure, CancellationToken cancellationToken, ReadOnlyMemory<byte> lastKey = default)
    {
        if (cancellationToken.IsCancellationRequested)
            return new OperationCanceledException(failure.Status.Detail, failure, cancellationToken);
        var position = lastKey.IsEmpty ? "" : $" The entries up to the key \"{OneLine.Of(Encoding.UTF8.GetString(lastKey.Span))}\" were returned.";
        return failure.GetRpcStatus() is { } status
            ? ToException(new Status(status) { Message = status.Message + position })
            : ToException(failure, failure.Status.Detail + position);
    }

    private static KvException ToException(RpcException failure, string message) => failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded
            ? new KvUnavailableException(CallStatus.ReasonOf(failure.StatusCode), message, failure)
            : new KvException(CallStatus.ReasonOf(failure.StatusCode), message, ChangeOutcome.NotApplied, failure);

    private static KvUnavailableException Unavailable(string reason, Status status)
    {
        var wait = CallStatus.RetryDelayOf(status);
        return new KvUnavailableException(reason, status.Message) { RetryAfter = wait > TimeSpan.Zero ? wait : null };
    }

    private static uint[] ShardsIn(Status status) => [.. StatusDetails.HintOf(status)?.Routes.Select(static route => route.Shard).Distinct() ?? []];

    private static KvConditionFailedException ConditionFailed(string message, ErrorInfo? info)
    {
        var index = info?.Metadata.TryGetValue("condition", out var text) == true && int.TryParse(text, out var parsed) ? parsed : -1;
        var etag = info?.Metadata.TryGetValue("etag", out var etagText) == true && Etag.TryParse(etagText, null, out var found) ? found : default;
        var shard = info?.Metadata.TryGetValue("shard", out var shardText) == true && uint.TryParse(shardText, out var id) ? id : 0;
        return new KvConditionFailedException(message, index, new ShardPosition(shard, etag));
    }
}
