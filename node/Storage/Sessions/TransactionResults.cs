using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The results of identified requests that a merged transaction gathers. They go into its record once for each session, which costs
/// about twenty bytes a session and six a request. Writer executor.
/// </summary>
internal sealed class TransactionResults
{
    /// <summary>What a result takes in a record at most: three numbers and a digest.</summary>
    private const int ResultBytesMax = (3 * Varint.BytesMax) + sizeof(uint);

    /// <summary>What the results of a session take besides: code, length, its id and its lowest open sequence.</summary>
    private const int SessionBytesMax = 1 + Varint.BytesMax + Operations.SessionBytes + Varint.BytesMax;

    private readonly Dictionary<UInt128, SessionResults> _sessions = [];
    private readonly Stack<SessionResults> _unused = new();
    private readonly ByteBuffer _content = new(1 << 10);
    private UInt128 _lastSession;
    private SessionResults? _last;

    /// <summary>Results gathered.</summary>
    public int Count { get; private set; }

    /// <summary>Bytes that they take in the record at most.</summary>
    public int BytesMax => (Count * ResultBytesMax) + (_sessions.Count * SessionBytesMax);

    /// <summary>Forgets the last transaction.</summary>
    public void Clear()
    {
        foreach (var session in _sessions.Values)
            _unused.Push(session);
        _sessions.Clear();
        _last = null;
        Count = 0;
    }

    /// <summary>A session in this transaction; null if there is none with this id.</summary>
    public SessionResults? Find(WriteBatch batch, UInt128 session)
    {
        // Most requests of a batch are of the session of the one before.
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

    /// <summary>Whether a request of the session is in this transaction: it cannot end in it.</summary>
    public bool Has(UInt128 session) => _sessions.ContainsKey(session);

    /// <summary>Adds a result to a session that <see cref="Find"/> gave.</summary>
    public void Add(SessionResults session, ulong sequence, in WriteResult result, uint digest)
    {
        session.Add(sequence, result, digest);
        Count++;
    }

    /// <summary>Appends one operation a session to a payload.</summary>
    public void WriteTo(ByteBuffer payload, UInt128 etagFirst)
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
