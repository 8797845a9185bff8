using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// The reference of a run: every record that a replica has sent to another one, and at the end the committed sequence of them, with the state of
/// every key at every etag. A committed record is on a majority, so it was sent. The log is built from the records alone, without the code that
/// applies them to trees.
/// </summary>
internal sealed class CommittedLog
{
    private const string MarkerPrefix = "write";

    private readonly Dictionary<Etag, (byte[] Body, long SentUs)> _sent = [];
    private readonly Dictionary<string, KeyLife> _lives = new(StringComparer.Ordinal);
    private readonly List<(UInt128 Session, long SentUs)> _sessionEnds = [];
    private readonly List<(long Value, Etag Put, long PutSentUs, ulong Epoch, long SentUs)> _expiries = [];
    private readonly HashSet<UInt128> _withLifetime = [];
    private readonly Dictionary<string, long> _putSentUs = new(StringComparer.Ordinal);
    private readonly Dictionary<string, List<Version>> _versions = new(StringComparer.Ordinal);
    private readonly Dictionary<long, List<Etag>> _appliedAt = [];
    private readonly SortedDictionary<string, (SortedSet<string> Members, Etag Etag)> _sets = new(StringComparer.Ordinal);
    private readonly Dictionary<Etag, (string Set, int Deleted, bool IsPartial)> _setDeletes = [];

    /// <summary>The changes that watchers see, in order.</summary>
    public List<WatchedChange> Events { get; } = [];

    /// <summary>All keys that were ever put, in the order of their bytes.</summary>
    public IReadOnlyList<string> Keys { get; private set; } = [];

    /// <summary>The sets in the last state, in the order of their keys, each with its members and the etag of its last change.</summary>
    public IReadOnlyDictionary<string, (SortedSet<string> Members, Etag Etag)> Sets => _sets;

    /// <summary>The ends of sessions, and when their records were first sent, in the run's time.</summary>
    public IReadOnlyList<(UInt128 Session, long SentUs)> SessionEnds => _sessionEnds;

    /// <summary>
    /// The keys that expired: the number in the value, the etag of the put, the epoch of the end, and when the records of both were first sent, in the run's
    /// time.
    /// </summary>
    public IReadOnlyList<(long Value, Etag Put, long PutSentUs, ulong Epoch, long SentUs)> Expiries => _expiries;

    /// <summary>The keys in the last state that are to expire, or that a session owns, each with its life.</summary>
    public IReadOnlyList<string> Living =>
        [.. _lives.Where(life => !life.Value.IsUnlimited && _versions[life.Key][^1].Exists).Select(static life => $"{life.Key} ({life.Value})")];

    /// <summary>How many sessions with a lifetime are open in the last state.</summary>
    public int OpenSessions => _withLifetime.Count;

    /// <summary>A record is in flight to another replica.</summary>
    public void Add(ReadOnlySpan<byte> body, long nowUs)
    {
        Violation.Unless(RecordBody.TryReadHeader(body, out var header), Rule.Contract, "a body without a header is sent");
        var etag = header.Etag;
        if (!_sent.TryGetValue(etag, out var known))
            _sent.Add(etag, (body.ToArray(), nowUs));
        else
            Violation.Unless(known.Body.AsSpan().SequenceEqual(body), Rule.EtagsRise, $"two records have the etag {etag}");
    }

    /// <summary>The run is over and this is the last committed record. Finds the records before it by their chain.</summary>
    public void Settle(Etag last)
    {
        var bodies = new Stack<(byte[] Body, long SentUs)>();
        for (var etag = last; etag != Etag.None;)
        {
            Violation.Unless(
                _sent.TryGetValue(etag, out var sent), Rule.CommittedStays, $"record {etag} is committed, and no replica has sent it to another one");
            bodies.Push(sent);
            _ = RecordBody.TryReadHeader(sent.Body, out var header);
            etag = header.Previous;
        }

        foreach (var (body, sentUs) in bodies)
            Apply(body, sentUs);
        Keys = [.. _versions.Keys.Order(StringComparer.Ordinal)];
    }

    /// <summary>The etags at which a write was applied. More than one means that it was applied more than once.</summary>
    public IReadOnlyList<Etag> AppliedAt(long writeId) => _appliedAt.TryGetValue(writeId, out var etags) ? etags : [];

    /// <summary>What a delete of a set with this etag has deleted, and whether some of the set was left. Null if there is none.</summary>
    public (string Set, int Deleted, bool IsPartial)? SetDeleteAt(Etag etag) => _setDeletes.TryGetValue(etag, out var found) ? found : null;

    /// <summary>All versions of a key, in order.</summary>
    public IReadOnlyList<Version> VersionsOf(string key) => _versions.TryGetValue(key, out var versions) ? versions : [];

    /// <summary>The version of a key in the state that ends with this etag.</summary>
    public Version At(string key, Etag etag)
    {
        if (!_versions.TryGetValue(key, out var versions))
            return Version.Absent;
        var (low, high) = (0, versions.Count);
        while (low < high)
        {
            var middle = (low + high) / 2;
            (low, high) = versions[middle].Etag <= etag ? (middle + 1, high) : (low, middle);
        }

        return low == 0 ? Version.Absent : versions[low - 1];
    }

    /// <summary>The version of a key just before the change with this etag.</summary>
    public Version Before(string key, Etag etag) => At(key, etag.Predecessor);

    private void Apply(byte[] body, long sentUs)
    {
        var owned = 0;
        var etag = new Etag(RecordBody.Epoch(body), RecordBody.FirstChange(body));
        using var payload = new RecordPayload(body);
        var reader = new OperationReader(payload.Operations);
        while (reader.MoveNext())
        {
            if (reader.Code is not (OperationCode.Results or OperationCode.SessionOpen or OperationCode.SessionEnd
                or OperationCode.ForgetExpiry or OperationCode.ForgetOwned or OperationCode.SessionLeft))
                Events.Add(new WatchedChange(etag, Encoding.ASCII.GetString(reader.Key)));
            if (reader.Code is OperationCode.Put or OperationCode.PutNumbered or OperationCode.Delete)
                Apply(Encoding.ASCII.GetString(reader.Key), etag, reader.Code == OperationCode.Delete ? null : reader.Value.ToArray(), reader.Life);
            if (reader.Code == OperationCode.Put && !reader.Life.IsUnlimited)
                _putSentUs[Encoding.ASCII.GetString(reader.Key)] = sentUs;
            if (reader.Code == OperationCode.Touch)
                ApplyTouch(Encoding.ASCII.GetString(reader.Key), reader.ExpiryMilliseconds);
            if (reader.Code is OperationCode.Expire or OperationCode.DeleteOwned)
                ApplyEnd(reader, etag, RecordBody.ShardTimeMicroseconds(body), sentUs);
            if (reader is { Code: OperationCode.SessionOpen, LifetimeMilliseconds: > 0 })
                _withLifetime.Add(reader.Session);
            owned += reader.Code == OperationCode.DeleteOwned ? 1 : 0;
            if (reader.Code == OperationCode.SessionEnd)
            {
                _sessionEnds.Add((reader.Session, sentUs));
                _withLifetime.Remove(reader.Session);
                owned = 0;
            }
            if (reader.Code == OperationCode.DeleteRange)
                ApplyDelete(Encoding.ASCII.GetString(reader.Key), Encoding.ASCII.GetString(reader.KeyEnd), etag);
            if (reader.Code is OperationCode.SetAdd or OperationCode.SetDelete)
                ApplyToSet(Encoding.ASCII.GetString(reader.Key), Encoding.ASCII.GetString(reader.Member), etag, reader.Code == OperationCode.SetDelete);
            if (reader.Code != OperationCode.Results)
                etag = new Etag(etag.Epoch, etag.Change + 1);
        }
        Violation.Unless(owned == 0, Rule.LivesEnd, $"{owned} keys of a session end at {etag}, and no session does");
    }

    private void ApplyTouch(string key, ulong expiryMilliseconds)
    {
        if (_lives.TryGetValue(key, out var life))
            _lives[key] = life with { ExpiryMilliseconds = expiryMilliseconds };
    }

    private void ApplyEnd(in OperationReader end, Etag etag, long shardTime, long sentUs)
    {
        var key = Encoding.ASCII.GetString(end.Key);
        var version = At(key, etag);
        var life = _lives.GetValueOrDefault(key);
        Violation.Unless(version.Exists, Rule.LivesEnd, $"{key} ends at {etag} and does not exist");
        if (end.Code == OperationCode.Expire)
        {
            Violation.Unless(version.Etag == end.Etag && life.ExpiryMilliseconds == end.ExpiryMilliseconds, Rule.LivesEnd, $"{key} expires at {etag} as of "
                + $"{end.Etag}, and was changed by {version.Etag}");
            Violation.Unless((ulong)shardTime / 1_000 >= end.ExpiryMilliseconds, Rule.LivesEnd, $"{key} expires at {etag} before its time");
            _expiries.Add((ClusterData.WriteOf(version.Value), version.Etag, _putSentUs[key], etag.Epoch, sentUs));
        }
        else
        {
            Violation.Unless(life.Owner != Etag.None, Rule.LivesEnd, $"{key} ends at {etag} with a session that does not own it");
        }
        Apply(key, etag, null, default);
    }

    private void Apply(string key, Etag etag, byte[]? value, KeyLife life)
    {
        _lives[key] = life;
        if (!_versions.TryGetValue(key, out var versions))
            _versions.Add(key, versions = []);
        versions.Add(new Version(etag, value));
        if (!key.StartsWith(MarkerPrefix, StringComparison.Ordinal))
            return;
        var writeId = long.Parse(key.AsSpan(MarkerPrefix.Length));
        if (!_appliedAt.TryGetValue(writeId, out var etags))
            _appliedAt.Add(writeId, etags = []);
        etags.Add(etag);
    }

    private void ApplyDelete(string from, string to, Etag etag)
    {
        foreach (var (key, versions) in _versions)
        {
            if (versions[^1].Exists && string.CompareOrdinal(key, from) >= 0 && (to.Length == 0 || string.CompareOrdinal(key, to) < 0))
                versions.Add(new Version(etag, null));
        }
    }

    // A part of a delete ends before some members, so what is left are the last members of the set. Without an end it deletes all.
    private void ApplyToSet(string key, string member, Etag etag, bool deletes)
    {
        var members = _sets.TryGetValue(key, out var set) ? set.Members : new SortedSet<string>(StringComparer.Ordinal);
        var before = members.Count;
        if (!deletes)
            members.Add(member);
        else if (member.Length == 0)
            members.Clear();
        else
        {
            members.RemoveWhere(other => string.CompareOrdinal(other, member) < 0);
            Violation.Unless(members.Count > 0 && members.Count < before, Rule.CommittedStays, $"a part of the {before} members of {key} is deleted at {etag}, "
                + $"and {members.Count} are left");
        }

        if (deletes)
            _setDeletes.Add(etag, (key, before - members.Count, member.Length > 0));
        if (members.Count == 0)
            _sets.Remove(key);
        else if (members.Count != before)
            _sets[key] = (members, etag);
    }

    /// <summary>What a change has left under a key.</summary>
    /// <param name="Etag">The etag of the change.</param>
    /// <param name="Value">Null if it deleted the key, or if there was none yet.</param>
    internal readonly record struct Version(Etag Etag, byte[]? Value)
    {
        public static Version Absent => default;

        /// <summary>Whether the key exists.</summary>
        public bool Exists => Value is not null;
    }
}
