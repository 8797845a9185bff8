using Google.Protobuf;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// The digest of this replica's trees at one record, which its leader, perhaps itself, has named: taken when exactly that record is applied, or not at
/// all. It belongs to one epoch and to one state: whoever changes either calls <see cref="Forget"/>.
/// </summary>
internal sealed class OwnDigest(ReplicaContext context)
{
    // 0: none is under way.
    private long _takeId;

    /// <summary>The comparison of this epoch that it is for; 0: none.</summary>
    public ulong Number { get; private set; }

    /// <summary>The record that was named for it.</summary>
    public Etag Etag { get; private set; }

    /// <summary>Null: not known yet. Empty: there is none.</summary>
    public ByteString? Value { get; private set; }

    /// <summary>What is applied must halt at this record, for <see cref="Begin"/>; <see cref="Etag.None"/>: nowhere.</summary>
    public Etag Awaited { get; private set; }

    /// <summary>A record was named for a comparison, which takes the place of an earlier one.</summary>
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

    /// <summary>Exactly the record that was named is applied, once the effects so far are performed.</summary>
    public void Begin()
    {
        Awaited = Etag.None;
        _takeId = context.NextRequestId();
        context.Emit(new Effect.TakeDigest(_takeId, Etag));
    }

    /// <summary>The driver has it. False: it is one that nobody wants any more.</summary>
    public bool TryEnd(long takeId, ByteString digest)
    {
        if (takeId != _takeId)
            return false;
        _takeId = 0;
        Value = digest;
        return true;
    }

    /// <summary>None is wanted, and what was said of the last one does not hold any more.</summary>
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
