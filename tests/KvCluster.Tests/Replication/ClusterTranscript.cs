using System.Globalization;
using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>
/// Runs the commands of a file in Transcripts on a few cores and returns the file with what they did. Lines that begin with "> " are commands, with
/// "#" remarks; all other lines are written anew. Disk and coordinator answer at once. Frames arrive at once and in order, unless their path is cut
/// or held.
/// </summary>
/// <remarks>
/// Commands: <c>cluster N</c>, <c>wake R</c> (a tick), <c>tick MS</c> (time passes for all), <c>append R</c>, <c>cut A-B</c>, <c>heal A-B</c> (both
/// directions), <c>hold A-B</c> (frames from A to B wait), <c>deliver A-B</c> (the waiting ones arrive), <c>trim R</c> (drops committed records from
/// the journal), <c>unknown done|lost</c> (the outcome of the next compare-and-set), <c>read R</c>, <c>follower-read R</c>, <c>transfer R TARGET</c>,
/// <c>learner R NEW</c>, <c>promote R ID</c>, <c>remove R ID</c>, <c>digests MS</c> (before the cluster: the interval between comparisons), <c>tree R
/// WORD</c> (changes its tree), <c>slow R</c> (its digests take until <c>done R</c>), <c>watch R</c> (it reads the record), <c>silent R NODE</c> (its
/// transport hears nothing from that node), <c>age R</c> (of its stale reads), <c>state</c>.
/// Not shown are acknowledgements, logs, heartbeats except those of a quiescent leader, and answers to heartbeats.
/// </remarks>
internal sealed class ClusterTranscript
{
    private const int StepsMax = 100_000;
    private readonly SortedDictionary<ulong, TranscriptMember> _members = [];
    private readonly HashSet<(ulong From, ulong To)> _cuts = [];
    private readonly HashSet<(ulong From, ulong To)> _holds = [];
    private readonly List<Frame> _held = [];
    private readonly Queue<Frame> _frames = [];
    private readonly List<string> _shown = [];
    private ShardRecord _record = new() { Generation = 1 };
    private long _revision = 1;
    private string? _unknown;
    private long _idLast;
    private int _steps;

    /// <summary>The options of all members.</summary>
    public ReplicationOptions Options { get; private set; } = new();

    /// <summary>The boot clock of all members.</summary>
    public long NowUs { get; private set; } = 1_000_000;

    /// <summary>Returns the file as it should be.</summary>
    public static string Run(string text)
    {
        var transcript = new ClusterTranscript();
        var lines = new List<string>();
        foreach (var line in text.ReplaceLineEndings("\n").Split('\n').Where(line => line.StartsWith("> ", StringComparison.Ordinal) || line.StartsWith('#')))
        {
            lines.Add(line);
            if (line.StartsWith('#'))
                continue;
            transcript.Do(line[2..].Split(' '));
            lines.AddRange(transcript._shown);
            transcript._shown.Clear();
        }

        return string.Join('\n', lines) + "\n";
    }

    /// <summary>Adds one line to the trace.</summary>
    public void Show(string line) => _shown.Add(line);

    /// <summary>Sends a frame.</summary>
    public void Send(Frame frame) => _frames.Enqueue(frame.Clone());

    /// <summary>A read of the current record.</summary>
    public Event.ShardRecordRead Read(long readId) => new(readId, _record.Clone(), _revision);

    /// <summary>Executes one transaction.</summary>
    public Event.CompareAndSetDone Set(Effect.CompareAndSet set)
    {
        var unknown = _unknown;
        _unknown = null;
        if (unknown == "lost")
            return new Event.CompareAndSetDone(set.SetId, SetOutcome.Unknown, 0);
        if (set.Revision != _revision)
            return new Event.CompareAndSetDone(set.SetId, SetOutcome.Lost, _revision);
        _record = set.Record.Clone();
        _revision++;
        return new Event.CompareAndSetDone(set.SetId, unknown is null ? SetOutcome.Won : SetOutcome.Unknown, _revision);
    }

    private void Do(string[] words)
    {
        _steps = 0;
        var replica = words.Length > 1 && ulong.TryParse(words[1], CultureInfo.InvariantCulture, out var number) ? number : 0;
        var id = words.Length > 2 && ulong.TryParse(words[2], CultureInfo.InvariantCulture, out number) ? number : 0;
        switch (words[0])
        {
            case "cluster":
                for (var member = 1u; member <= replica; member++)
                    _record.Replicas.Add(new ReplicaRecord { Replica = member, Node = member, Created = true });
                for (var member = 1u; member <= replica; member++)
                    _members[member] = new TranscriptMember(this, member, _record.Clone(), _revision);
                return;
            case "cut":
            case "heal":
            case "hold":
                ChangePaths(words[0], Path(words[1]));
                return;
            case "digests":
                Options = Options with { DigestIntervalUs = (long)replica * 1_000, DigestTimeUs = 5_000_000 };
                return;
            case "tree":
                _members[replica].Tree = words[2];
                return;
            case "slow":
                _members[replica].HoldsDigests = true;
                return;
            case "done":
                _members[replica].EndDigest();
                break;
            case "unknown":
                _unknown = words[1];
                return;
            case "trim":
                _members[replica].Trim();
                return;
            case "wake":
                _members[replica].Step(Event.Tick.Instance);
                break;
            case "tick":
                Pass(NowUs + ((long)replica * 1_000));
                return;
            case "watch":
                _members[replica].Step(Read(0));
                break;
            case "append":
                _members[replica].Append();
                break;
            case "deliver":
                var path = Path(words[1]);
                _holds.Remove(path);
                foreach (var frame in _held.Where(frame => (frame.Sender, frame.Receiver) == path).ToList())
                {
                    _held.Remove(frame);
                    _frames.Enqueue(frame);
                }

                break;
            case "silent":
                _members[replica].Step(new Event.NodeSilent(new((uint)id)));
                break;
            case "read":
                _members[replica].Step(new Event.ReadArrived(++_idLast));
                break;
            case "follower-read":
                _members[replica].Step(new Event.FollowerReadArrived(++_idLast));
                break;
            case "transfer":
                _members[replica].Step(new Event.TransferAsked(++_idLast, new(id)));
                break;
            case "learner":
                Change(replica, new ReplicaChange.AddLearner(new(id), new((uint)id)));
                _record.Replicas.Single(record => record.Replica == id).Created = true;
                _revision++;
                _members[id] = new TranscriptMember(this, id, _record.Clone(), _revision);
                foreach (var member in _members.Values.ToList())
                    member.Step(Read(0));
                break;
            case "promote":
                Change(replica, new ReplicaChange.Promote(new(id), VotersMax: int.MaxValue));
                return;
            case "remove":
                Change(replica, new ReplicaChange.Remove(new(id)));
                return;
            case "age":
                Show($"{replica}: {(NowUs - _members[replica].Core.CurrentUs) / 1_000} ms old");
                return;
            case "state":
                foreach (var member in _members.Values)
                    Show(member.State);
                return;
            default:
                throw new FormatException($"No command {words[0]}.");
        }

        Settle();
    }

    private void Change(ulong replica, ReplicaChange change)
    {
        _members[replica].Step(new Event.ReplicasAsked(++_idLast, change));
        Settle();
    }

    private void ChangePaths(string verb, (ulong From, ulong To) path)
    {
        if (verb == "hold")
            _holds.Add(path);
        else if (verb == "cut")
            _cuts.UnionWith([path, (path.To, path.From)]);
        else
            _cuts.ExceptWith([path, (path.To, path.From)]);
    }

    private void Pass(long untilUs)
    {
        for (var next = _members.Values.MinBy(member => member.Core.NextTickUs)!; next.Core.NextTickUs <= untilUs;
             next = _members.Values.MinBy(member => member.Core.NextTickUs)!)
        {
            NowUs = Math.Max(NowUs, next.Core.NextTickUs);
            next.Step(Event.Tick.Instance);
            Settle();
        }

        NowUs = untilUs;
    }

    private void Settle()
    {
        while (_frames.TryDequeue(out var frame))
        {
            Assert.True(++_steps < StepsMax, "The cluster does not become idle.");
            var path = (frame.Sender, frame.Receiver);
            if (_cuts.Contains(path) || !_members.TryGetValue(frame.Receiver, out var receiver))
                continue;
            if (_holds.Contains(path))
                _held.Add(frame);
            else
                receiver.Step(new Event.FrameReceived(frame));
        }
    }

    private static (ulong From, ulong To) Path(string word)
    {
        var ends = word.Split('-');
        return (ulong.Parse(ends[0], CultureInfo.InvariantCulture), ulong.Parse(ends[1], CultureInfo.InvariantCulture));
    }
}
