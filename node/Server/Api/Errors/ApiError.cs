using Google.Protobuf.WellKnownTypes;
using Grpc.Core;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Api.Errors;

/// <summary>Why a call is refused: a gRPC status with the details that the header of kv.proto promises.</summary>
/// <param name="Code">The gRPC status code.</param>
/// <param name="Reason">A stable name, for programs.</param>
/// <param name="Message">One line, for people.</param>
internal sealed record ApiError(StatusCode Code, string Reason, string Message)
{
    /// <summary>Name of the status as gRPC writes it, such as FAILED_PRECONDITION.</summary>
    public string StatusName => Spans.NameOf(Code);

    /// <summary>Whether a change may have been applied. Otherwise it certainly was not.</summary>
    public bool IsOutcomeUnknown { get; init; }

    /// <summary>The time after which a retry makes sense.</summary>
    public TimeSpan? RetryAfter { get; init; }

    /// <summary>The shard and etag at which the call was evaluated.</summary>
    public (ShardId Shard, Etag Etag)? Position { get; init; }

    /// <summary>Index of the condition that did not hold.</summary>
    public int? FailedCondition { get; init; }

    /// <summary>Size in bytes of the response that the call would have had.</summary>
    public int? ReplyBytes { get; init; }

    /// <summary>The oldest position from which a watch can begin.</summary>
    public (ShardId Shard, Etag Oldest)? Compacted { get; init; }

    /// <summary>This node, if its program does not know the call.</summary>
    public NodeId? UnsupportedBy { get; init; }

    /// <summary>The correct routes, as far as this node knows them.</summary>
    public IReadOnlyList<ShardRoute>? Routes { get; init; }

    /// <summary>The status in its wire form.</summary>
    public Google.Rpc.Status ToStatus()
    {
        var info = StatusDetails.Info(Reason, IsOutcomeUnknown ? StatusDetails.MaybeApplied : StatusDetails.NotApplied);
        if (Position is var (shard, etag))
        {
            info.Metadata["shard"] = shard.ToString(null, System.Globalization.CultureInfo.InvariantCulture);
            info.Metadata["etag"] = etag.ToString();
        }
        if (FailedCondition is { } condition)
            info.Metadata["condition"] = condition.ToString(System.Globalization.CultureInfo.InvariantCulture);
        if (ReplyBytes is { } bytes)
            info.Metadata[StatusDetails.ReplyBytesKey] = bytes.ToString(System.Globalization.CultureInfo.InvariantCulture);
        if (UnsupportedBy is { } node)
            UnsupportedCall.Describe(info, node, ProgramVersion.Full);
        var status = StatusDetails.Create(Code, Message, info);
        if (RetryAfter is { } delay)
            StatusDetails.WithWait(status, delay);
        if (Routes is { Count: > 0 })
            status.Details.Add(Any.Pack(new RouteHint { Routes = { Routes } }));
        if (Compacted is var (ofShard, oldest))
            status.Details.Add(
                Any.Pack(new Compacted { Oldest = new Position { ShardId = ofShard, Etag = new V1.Etag { Epoch = oldest.Epoch, Change = oldest.Change } } }));
        return status;
    }
}
