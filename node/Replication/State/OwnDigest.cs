using Google.Protobuf;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// The digest of this replica's trees at one record that its leader, perhaps itself, has named. It is taken when exactly that record is applied, or not at
/// all. It belongs to one epoch and one state: whoever changes either calls <see cref="Forget"/>.
/// </summary>
internal sealed class OwnDigest(ReplicaContext context)
{
    // The computation in progress; 0 if there is none.
    private long _takeId;

    /// <summary>The number of the comparison in this epoch; 0: none.</summary>
    public ulong Number { get; private set; }

    /// <summary>The record that was named for it.</summary>
    public Etag Etag { get; private set; }

    /// <summary>Null: not known yet. Empty: there is none.</summary>
    public ByteString? Value { get; private set; }

    /// <summary>Applying must pause at this record so that <see cref="Begin"/> can be called; <see cref="Etag.None"/>: nowhere.</summary>
    public Etag Awaited { get; private set; }

    /// <summary>A record was named for a comparison, which replaces an earlier one.</summary>
    public void Take(ulong number, Etag etag)
    {
        Forget();
        Number = number;
        Etag = etag;
        if (context.Committed > etag)
            Value = ByteString.Empty;
        else if (context.Committed < etag)
            Awaited = etag;
        else
            Begin();
    }

    /// <summary>Exactly the named record will be applied once the effects so far are performed.</summary>
    public void Begin()
    {
        Invariant.Check(context.Committed == Etag, $"The digest at {Etag} is taken when {context.Committed} is committed.");
        Awaited = Etag.None;
        _takeId = context.NextRequestId();
        context.Emit(new Effect.TakeDigest(_takeId, Etag));
    }

    /// <summary>The driver has the digest. False if it belongs to an abandoned comparison.</summary>
    public bool TryEnd(long takeId, ByteString digest)
    {
        if (takeId != _takeId)
            return false;
        _takeId = 0;
        Value = digest;
        return true;
    }

    /// <summary>Cancels the digest in progress and discards the last one.</summary>
    public void Forget()
    {
        if (_takeId != 0)
            context.Emit(Effect.DropDigest.Instance);
        _takeId = 0;
        Number = 0;
        Etag = Awaited = Etag.None;
        Value = null;
    }
}
