using Google.Protobuf;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// A read of one snapshot that is done in turns, and its answer. Made by <see cref="KvQueries"/> for each call and used by one thread at a time.
/// </summary>
internal abstract class SnapshotQuery
{
    /// <summary>The message that is answered, as far as it is written.</summary>
    protected MessageBytes Answer { get; private set; } = null!;

    /// <summary>The snapshot that is read.</summary>
    protected OpenedRead Read { get; private set; }

    /// <summary>The shard's route when the read began.</summary>
    protected V1.ShardRoute Route { get; private set; } = null!;

    /// <summary>For how long the snapshot is kept for a next page.</summary>
    protected TimeSpan KeptFor { get; private set; }

    /// <summary>Of the replica that answers. Its clock is read where an answer tells how long keys live.</summary>
    protected HostedShard Shard { get; private set; } = null!;

    /// <summary>Why there is no answer.</summary>
    public ApiError? Refusal { get; protected set; }

    /// <summary>If the snapshot was kept since the page before, its token; otherwise 0.</summary>
    public virtual ulong TokenBefore => 0;

    /// <summary>If the snapshot is to be kept for the next page, its token; otherwise 0.</summary>
    public virtual ulong TokenForMore => 0;

    /// <summary>Whether the shard has everything that the query names; otherwise the error.</summary>
    public virtual ApiError? CheckIn(HostedShard shard, ShardLookup lookup) => null;

    /// <summary>Begins to answer. Every answer has the position in its first field.</summary>
    public void Begin(MessageBytes answer, HostedShard shard, in OpenedRead read, TimeSpan keptFor = default)
    {
        (Answer, Read, Route, Shard, KeptFor) = (answer, read, shard.Route, shard, keptFor);
        new WireWriter(answer.Append(WireWriter.BytesFieldSize(WireWriter.PositionSize(shard.InLineage, read.AgeUs))))
            .PositionField(1, shard.InLineage, read.Snapshot.Etag, read.AgeUs);
    }

    /// <summary>Continues until a time, at least a little. True if the answer is whole, or <see cref="Refusal"/> is set.</summary>
    public abstract bool Step(TimeProvider clock, long until);

    /// <summary>Releases what the query holds of the snapshot, before that ends.</summary>
    public virtual void End()
    {
        // Most queries hold nothing.
    }

    /// <summary>Appends a message, whose fields follow those written already.</summary>
    protected void Append(IMessage message)
    {
        var bytes = message.CalculateSize();
        message.WriteTo(Answer.Append(bytes));
    }

    /// <summary>Appends a bytes field with a number below 16.</summary>
    protected void AppendBytes(int field, ReadOnlySpan<byte> value) =>
        new WireWriter(Answer.Append(WireWriter.BytesFieldSize(value.Length))).BytesField(field, value);
}
