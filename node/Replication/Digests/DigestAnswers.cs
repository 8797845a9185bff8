using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Digests;

/// <summary>
/// A follower's side of comparing trees (<see cref="DigestComparison"/>). It takes its digest at the record that its leader names, reports it, and stops
/// the replica if the digest is wrong.
/// </summary>
internal sealed class DigestAnswers(ReplicaContext context)
{
    private const int ShownBytes = 8;
    private long _doubtDueUs = long.MinValue;

    /// <summary>The beginning of a digest, as shown in logs.</summary>
    public static string Shown(ByteString digest) => Convert.ToHexStringLower(digest.Span[..Math.Min(ShownBytes, digest.Length)]);

    /// <summary>The leader names a record, perhaps again.</summary>
    public void OnAsk(Frame frame)
    {
        var ask = frame.DigestAsk;
        // A lower number is an older request that arrived late.
        if (ask.Number < context.OwnDigest.Number)
            return;
        if (ask.Number > context.OwnDigest.Number)
            context.OwnDigest.Take(ask.Number, ask.Etag.FromWire());
        Report(frame.SenderId);
    }

    /// <summary>Sends the digest to the leader, if there is one.</summary>
    public void Report(ReplicaId leader)
    {
        if (leader.IsNone || context.OwnDigest.Value is not { } digest)
            return;
        var frame = context.FrameTo(leader, context.Promised);
        frame.DigestReport = new DigestReport { Number = context.OwnDigest.Number, Digest = digest };
        context.Send(frame);
    }

    /// <summary>A majority has a different digest than this process reported for its present trees. The replica stops for good.</summary>
    public void OnDiffers(DigestDiffers differs)
    {
        var own = context.OwnDigest;
        if (differs.Number != own.Number || own.Value is not { IsEmpty: false } reported || reported != differs.Reported)
            return;
        context.Emit(new Effect.Quarantine($"its trees at {own.Etag} have the digest {Shown(reported)}, but the majority's have {Shown(differs.Expected)}"));
    }

    /// <summary>Reminds a serving leader that this replica's trees differed from the majority's when it led.</summary>
    public void OnHeartbeat(Frame frame)
    {
        if (!context.TreeDoubted || frame.Heartbeat.Committed.FromWire().Epoch != frame.Epoch || context.NowUs < _doubtDueUs)
            return;
        _doubtDueUs = context.NowUs + context.Options.DigestRepeatUs;
        var answer = context.FrameTo(frame.SenderId, frame.Epoch);
        answer.DigestDoubt = new DigestDoubt();
        context.Send(answer);
    }
}
