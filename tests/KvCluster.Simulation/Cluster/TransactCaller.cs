using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller of whole replicas that makes transactions of all kinds of operations: two lists, increments, sequence keys, new expiries, reads and scans, under
/// conditions on keys, ranges and sets. Each is identified and sent again and again, also after it was answered, at any replica and at the next leaders:
/// every answer must have the same bytes. At the end each is in the committed records once if it was answered, and at most once in any case.
/// </summary>
internal sealed class TransactCaller(ClusterRun run)
{
    private const long RestUs = 30_000;
    private const long TimeoutUs = 150_000;
    private const int Keys = 4;
    private const int OperationsMax = 4;
    private const int AttemptsMax = 40;
    private const int RepeatInOneOf = 2;

    // Nothing of a run lives so long.
    private const ulong TtlMs = 3_600_000;

    private readonly Dictionary<long, bool> _made = [];
    private NodeId _node = new(1);
    private UInt128 _session;
    private ulong _sequence;
    private long _number;
    private Action<WriteRequest>? _fill;
    private WriteResult? _answer;
    private int _attempts;
    private long _turn;

    /// <summary>Answers to repetitions of transactions that had been answered before.</summary>
    public long Repeated { get; private set; }

    public void Start() => run.Time.After(run.Random.NextInt64(RestUs), Next);

    /// <summary>Compares what it was told with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var (number, isAnswered) in _made)
        {
            var committed = log.VersionsOf(MarkerOf(number)).Count;
            Violation.Unless(
                committed == 1 || (committed == 0 && !isAnswered), Rule.AppliedOnce,
                $"transaction {number}, {(isAnswered ? "" : "not ")}answered, is in {committed} committed changes");
        }
    }

    private static string MarkerOf(long number) => $"kt/made/{number:D6}";

    private void Next()
    {
        if (run.Healed)
            return;
        var turn = ++_turn;
        // An answer may be lost.
        run.Time.After(TimeoutUs, () =>
        {
            if (turn == _turn)
                Elsewhere();
        });
        if (_session == 0)
            Open(turn);
        else
            Attempt(turn);
    }

    private void Rest()
    {
        _turn++;
        run.Time.After(run.Random.NextInt64(RestUs), Next);
    }

    private void Elsewhere()
    {
        _node = run.Random.Next(3) == 0 ? new((uint)run.Random.Next(run.Nodes.Count) + 1) : run.LeaderHint;
        Rest();
    }

    private void Open(long turn)
    {
        var session = run.DrawSession();
        run.Network.Call(_node, node => node.Requests.OpenSession(session, new QuotaOwner(98, 1), result => run.Network.Reply(() =>
        {
            if (turn != _turn)
                return;
            if (result.Outcome != WriteOutcome.Applied)
            {
                Elsewhere();
                return;
            }
            (_session, _sequence) = (session, 0);
            Rest();
        })));
    }

    private void Attempt(long turn)
    {
        if (_fill is null)
            Draw();
        _attempts++;
        var (fill, session, sequence, number) = (_fill!, _session, _sequence, _number);
        run.Network.Call(_node, node => node.Requests.Make(
            request =>
            {
                fill(request);
                request.Identify(session, sequence, sequence);
            },
            result => run.Network.Reply(() => OnAnswer(turn, number, result))));
    }

    private void OnAnswer(long turn, long number, WriteResult result)
    {
        // Late answers of the present transaction count like others.
        if (number != _number || _fill is null)
            return;
        switch (result.Outcome)
        {
            case WriteOutcome.Applied:
                if (_answer is { } first)
                {
                    Repeated++;
                    Violation.Unless(
                        first.Equals(result), Rule.AppliedOnce,
                        $"transaction {number} was answered {first} with {first.Results?.Length} bytes of results, and then {result} with "
                        + $"{result.Results?.Length}");
                }
                _answer ??= result;
                _made[number] = true;
                if (run.Random.Next(RepeatInOneOf) != 0 || _attempts >= AttemptsMax)
                    _fill = null;
                break;
            case WriteOutcome.SessionExpired or WriteOutcome.SequenceClosed:
                (_session, _fill) = (0, null);
                break;
            case WriteOutcome.SequenceReused:
                throw new Violation(Rule.AppliedOnce, $"transaction {number} is told that another one has its sequence");
            default:
                break;
        }
        if (turn == _turn)
            Elsewhere();
    }

    private void Draw()
    {
        _number++;
        _sequence++;
        (_answer, _attempts) = (null, 0);
        _made.Add(_number, false);
        var parts = new List<Action<WriteRequest>> { request => request.WantsResults = true };
        for (var condition = run.Random.Next(3); condition > 0; condition--)
            parts.Add(DrawCondition());
        parts.AddRange(DrawList());
        parts.Add(static request => request.BeginFailureList());
        parts.AddRange(DrawList());
        _fill = request => parts.ForEach(part => part(request));
    }

    private IEnumerable<Action<WriteRequest>> DrawList()
    {
        var marker = Encoding.ASCII.GetBytes(MarkerOf(_number));
        var value = ClusterData.Value(_number);
        yield return request => request.Put(marker, value);
        for (var left = run.Random.Next(OperationsMax); left > 0; left--)
            yield return DrawOperation(value);
    }

    private Action<WriteRequest> DrawOperation(byte[] value)
    {
        var key = Encoding.ASCII.GetBytes($"kt/key/{run.Random.Next(Keys)}");
        switch (run.Random.Next(8))
        {
            case 0:
                return request => request.Put(key, value);
            case 1:
                return request => request.Put("kt/seq/"u8, value, new PutTerms(0, 0, IsNumbered: true));
            case 2:
                var by = run.Random.Next(-5, 6);
                return request => request.Increment("kt/count"u8, by);
            case 3:
                // Of a key that it puts before, so that there is one.
                return request =>
                {
                    request.Put(key, value, new PutTerms(TtlMs, 0, IsNumbered: false));
                    request.Touch(key, 0);
                };
            case 4:
                return request => request.Get(key);
            case 5:
                return static request => request.Scan("kt/key/"u8, "kt/key0"u8, Keys, keysOnly: false);
            case 6:
                return static request => request.Scan("kt/seq/"u8, "kt/seq0"u8, 3, keysOnly: true);
            default:
                return request => request.Delete(key);
        }
    }

    private Action<WriteRequest> DrawCondition()
    {
        var key = Encoding.ASCII.GetBytes($"kt/key/{run.Random.Next(Keys)}");
        switch (run.Random.Next(4))
        {
            case 0:
                return request => request.AddCondition(key, ConditionKind.Exists);
            case 1:
                return request => request.AddCondition(key, ConditionKind.Absent);
            case 2:
                var count = (ulong)run.Random.Next(Keys);
                return request => request.AddRangeCondition("kt/key/"u8, "kt/key0"u8, count, null);
            default:
                var kind = run.Random.Next(2) == 0 ? ConditionKind.SetHas : ConditionKind.SetLacks;
                return request => request.AddCondition(Encoding.ASCII.GetBytes(ClusterData.SetOf(0)), kind, value: "a member"u8);
        }
    }
}
