using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// One session in the transaction that is being merged: its state in the tree, and the results that the transaction adds. Writer executor; reused by
/// <see cref="TransactionResults"/>.
/// </summary>
internal sealed class SessionResults
{
    private readonly List<(ulong Sequence, WriteResult Result, uint Digest)> _added = [];
    private readonly Dictionary<ulong, int> _places = [];
    private readonly ByteBuffer _kept = new(0);
    private UInt128 _session;
    private SessionState _stored;
    private ulong _lowestOpen;

    /// <summary>Results that the transaction adds.</summary>
    public int Count => _added.Count;

    /// <summary>Initializes this object for a session with the state that the tree has.</summary>
    public void Begin(UInt128 session, in SessionState stored)
    {
        (_session, _stored, _lowestOpen) = (session, stored, stored.LowestOpen);
        _added.Clear();
        _places.Clear();
    }

    /// <summary>Notes the lowest open sequence that the client states, and returns whether the request itself is open.</summary>
    public bool IsOpen(ulong sequence, ulong lowestOpen)
    {
        _lowestOpen = Math.Max(_lowestOpen, lowestOpen);
        return sequence >= _lowestOpen;
    }

    /// <summary>Finds the result that a sequence already has, in the tree or in this transaction, and the digest of its request.</summary>
    public bool TryFind(WriteBatch batch, ulong sequence, out WriteResult result, out uint digest)
    {
        if (_places.TryGetValue(sequence, out var place))
        {
            (_, result, digest) = _added[place];
            return true;
        }
        (result, digest) = (default, 0);
        return sequence < _stored.Next && SessionTable.TryReadResult(batch, _session, sequence, out result, out digest);
    }

    /// <summary>Adds a request's result. The etags of the results never decrease.</summary>
    public void Add(ulong sequence, in WriteResult result, uint digest)
    {
        _places.Add(sequence, _added.Count);
        _added.Add((sequence, result, digest));
    }

    /// <summary>Appends the results, encoded for <see cref="ResultsReader"/>.</summary>
    public void WriteTo(ByteBuffer content, Etag etagFirst)
    {
        Operations.AppendSession(content, _session);
        content.AppendNumber(_lowestOpen);
        var sequence = _lowestOpen - 1;
        var change = etagFirst.Change - 1;
        foreach (var (added, result, digest) in _added)
        {
            content.AppendNumber(Varint.Fold(added - sequence - 1));
            var stored = StoredResult.Of(result);
            content.AppendNumber(((result.Etag.Change - change) << StoredResult.KindBits) | (ulong)stored.Kind);
            if (stored.Kind is not (ResultKind.Applied or ResultKind.WithResults))
                content.AppendNumber(stored.Number);
            BinaryPrimitives.WriteUInt32LittleEndian(content.Reserve(sizeof(uint)), digest);
            content.Advance(sizeof(uint));
            if (stored.Kind == ResultKind.WithResults)
            {
                _kept.Clear(capacityMax: 1 << 16);
                StoredResult.WriteKept(_kept, result);
                content.AppendWithLength(_kept.Written);
            }
            (sequence, change) = (added, result.Etag.Change);
        }
    }
}
