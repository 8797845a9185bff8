using KvCluster.Storage.Sessions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller of whole replicas that fills sets until they are trees, and has them deleted, which takes several records each. It tries a request once, at the
/// node that it takes for the leader, so what became of it may remain unknown. At the end the answers are compared with the committed records.
/// </summary>
internal sealed class SetCaller(ClusterRun run)
{
    private const int Sets = 2;
    private const int MembersAtOnce = 15;
    private const long RestUs = 60_000;
    private const int DeleteInOneOf = 5;
    private const int DeleteTheRestInOneOf = 4;

    private readonly List<(string Set, WriteResult Result)> _deletes = [];
    private int _members;
    private int? _partial;

    /// <summary>Answers to deletes after which a part of the set was left.</summary>
    public long Parts => _deletes.Count(static one => one.Result.IsPartial);

    public void Start() => run.Time.After(run.Random.NextInt64(RestUs), Next);

    /// <summary>Compares the answers with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var (set, result) in _deletes)
        {
            var committed = log.SetDeleteAt(result.Etag);
            Violation.Unless(
                committed == (set, result.Deleted, result.IsPartial), Rule.CommittedStays,
                $"a delete of {set} at {result.Etag} was answered {result.Deleted} members{(result.IsPartial ? " of more" : "")}, committed is {committed}");
        }
    }

    private void Next()
    {
        // Mostly the rest of a delete follows its part, and sometimes members before those that are left.
        if (_partial is { } begun && run.Random.Next(DeleteTheRestInOneOf) != 0)
            Delete(begun);
        else if (run.Random.Next(DeleteInOneOf) == 0)
            Delete(run.Random.Next(Sets));
        else
            Add(run.Random.Next(Sets));
        run.Time.After(run.Random.NextInt64(run.Healed ? 10 * RestUs : RestUs), Next);
    }

    private void Add(int set)
    {
        string[] members = [.. Enumerable.Range(0, MembersAtOnce).Select(_ => ClusterData.Member(run.Random.Next(1_000), ++_members))];
        run.Network.Call(run.LeaderHint, node => node.Requests.AddToSet(ClusterData.SetOf(set), members));
    }

    private void Delete(int set)
    {
        var name = ClusterData.SetOf(set);
        run.Network.Call(run.LeaderHint, node => node.Requests.DeleteSet(name, result => run.Network.Reply(() =>
        {
            run.Transcript.Answer(run.NowUs, $"delete of {name} {result.Outcome}, {result.Deleted} members{(result.IsPartial ? " of more" : "")}", result.Etag);
            if (result.Outcome != WriteOutcome.Applied)
                return;
            _deletes.Add((name, result));
            _partial = result.IsPartial ? set : null;
        })));
    }
}
