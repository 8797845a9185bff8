using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The results of identified requests that a merged transaction gathers. The record has one operation with results per session; this takes about twenty
/// bytes per session and six per request. Writer executor.
/// </summary>
internal sealed class TransactionResults
{
    /// <summary>The most bytes that a result takes in a record: three numbers and a digest.</summary>
    private const int ResultBytesMax = (3 * Varint.BytesMax) + sizeof(uint);

    /// <summary>The most bytes that the results of a session take in addition: code, length, id and lowest open sequence.</summary>
    private const int SessionBytesMax = 1 + Varint.BytesMax + Operations.SessionBytes + Varint.BytesMax;

    private readonly Dictionary<UInt128, SessionResults> _sessions = [];
    private readonly Stack<SessionResults> _unused = new();
    private readonly ByteBuffer _content = new(1 << 10);
    private UInt128 _lastSession;
    private SessionResults? _last;
    private int _keptBytesMax;

    /// <summary>Number of results gathered.</summary>
    public int Count { get; private set; }

    /// <summary>The most bytes that they take in the record.</summary>
    public int BytesMax => (Count * ResultBytesMax) + (_sessions.Count * SessionBytesMax) + _keptBytesMax;

    /// <summary>Discards the previous transaction's results.</summary>
    public void Clear()
    {
        foreach (var session in _sessions.Values)
            _unused.Push(session);
        _sessions.Clear();
        _last = null;
        (Count, _keptBytesMax) = (0, 0);
    }

    /// <summary>A session in this transaction; null if there is no session with this id.</summary>
    public SessionResults? Find(WriteBatch batch, UInt128 session)
    {
        // Most requests of a batch belong to the same session as the one before.
        if (_last is not null && _lastSession == session)
            return _last;
        if (!_sessions.TryGetValue(session, out var found))
        {
            if (!SessionTable.TryRead(batch, session, out var stored))
                return null;
            found = _unused.TryPop(out var unused) ? unused : new SessionResults();
            found.Begin(session, stored);
            _sessions.Add(session, found);
        }
        (_lastSession, _last) = (session, found);
        return found;
    }

    /// <summary>Whether a request of the session is in this transaction, in which the session then cannot end.</summary>
    public bool Has(UInt128 session) => _sessions.ContainsKey(session);

    /// <summary>Adds a result to a session that <see cref="Find"/> returned.</summary>
    public void Add(SessionResults session, ulong sequence, in WriteResult result, uint digest)
    {
        session.Add(sequence, result, digest);
        Count++;
        if (result.Results is not null)
            _keptBytesMax += Varint.BytesMax + StoredResult.KeptBytesMax(result);
    }

    /// <summary>Forgets the results of a session that ends in this transaction. They would be dropped with it.</summary>
    public void Drop(UInt128 session)
    {
        if (!_sessions.Remove(session, out var dropped))
            return;
        Count -= dropped.Count;
        _unused.Push(dropped);
        _last = null;
    }

    /// <summary>Appends one operation per session to a payload.</summary>
    public void WriteTo(ByteBuffer payload, Etag etagFirst)
    {
        foreach (var session in _sessions.Values)
        {
            if (session.Count == 0)
                continue;
            _content.Clear(capacityMax: 1 << 16);
            session.WriteTo(_content, etagFirst);
            payload.Append([(byte)OperationCode.Results]);
            payload.AppendWithLength(_content.Written);
        }
    }
}
