namespace KvCluster.Replication.Protocol;

/// <summary>
/// A set of voters and its majority rule, used by commit, lease, quorum reads, pre-vote and Prepare alike. While a change of membership is in progress
/// there are two sets, and a majority of each is needed.
/// </summary>
internal sealed class Quorum
{
    private readonly ReplicaId[][] _sets;
    private readonly ReplicaId[] _absent = [];

    /// <param name="sets">Replica ids of the voters: one or two sets, neither empty.</param>
    public Quorum(params ReplicaId[][] sets)
    {
        Invariant.Check(sets.Length is 1 or 2, "A quorum covers one set of voters or two.");
        _sets = sets;
    }

    private Quorum(ReplicaId[][] sets, ReplicaId[] absent)
        : this(sets) => _absent = absent;

    /// <summary>One set of voters, of which some count for nothing (R41): the majority is one of all of them, but is reached without these.</summary>
    public static Quorum Of(ReplicaId[] voters, ReplicaId[] absent) => new([voters], absent);

    /// <summary>A quorum that needs a majority of each.</summary>
    public static Quorum Joint(Quorum one, Quorum other) => new([.. one._sets, .. other._sets], [.. one._absent.Union(other._absent)]);

    /// <summary>All voters of both sets, each once.</summary>
    public IEnumerable<ReplicaId> Voters => _sets.SelectMany(set => set).Distinct();

    /// <summary>Whether the replica is a voter of any set.</summary>
    public bool Contains(ReplicaId replica) => _sets.Any(set => set.Contains(replica));

    /// <summary>The greatest value that a majority of every set has reached; the least possible value if a set is empty.</summary>
    public T Agreed<T>(Func<ReplicaId, T> valueOf)
        where T : struct, IComparable<T>
    {
        var agreed = AgreedIn(_sets[0], valueOf);
        for (var i = 1; i < _sets.Length; i++)
        {
            var other = AgreedIn(_sets[i], valueOf);
            agreed = other.CompareTo(agreed) < 0 ? other : agreed;
        }

        return agreed;
    }

    /// <summary>Whether the predicate holds for a majority of every set.</summary>
    public bool Reached(Func<ReplicaId, bool> saysYes) => Agreed(saysYes);

    /// <summary>Whether the voters are the same, in the same sets, in any order, whether or not they count.</summary>
    public bool SameAs(Quorum other) =>
        _sets.Length == other._sets.Length && _sets.Zip(other._sets).All(pair => pair.First.ToHashSet().SetEquals(pair.Second));

    // Sets are small, so this counts for each value how many voters have reached it. It neither sorts nor allocates.
    private T AgreedIn<T>(ReplicaId[] voters, Func<ReplicaId, T> valueOf)
        where T : struct, IComparable<T>
    {
        var majority = voters.Length / 2 + 1;
        var best = default(T);
        foreach (var voter in voters)
        {
            var value = ValueOf(voter, valueOf);
            if (value.CompareTo(best) <= 0)
                continue;
            var reached = 0;
            foreach (var other in voters)
            {
                if (ValueOf(other, valueOf).CompareTo(value) >= 0)
                    reached++;
            }

            if (reached >= majority)
                best = value;
        }

        return best;
    }

    private T ValueOf<T>(ReplicaId voter, Func<ReplicaId, T> valueOf)
        where T : struct => _absent.Length > 0 && Array.IndexOf(_absent, voter) >= 0 ? default : valueOf(voter);
}
