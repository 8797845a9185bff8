namespace KvCluster.Storage.Context;

/// <summary>
/// The stores whose files are on one disk. One that lacks space asks the others for what they only keep: a store that writes nothing, or still has space in its
/// own files, does not notice that the disk is full. Any thread.
/// </summary>
/// <param name="time">The clock of the interval between two requests.</param>
internal sealed class SharedDisk(TimeProvider time)
{
    /// <summary>As often as one store looks for space. With many that lack some, the others are asked no more often.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);

    private readonly Lock _gate = new();
    private readonly HashSet<Member> _members = [];
    private long? _askedAt;

    /// <summary>Adds a store.</summary>
    /// <param name="giveWay">Called on any thread when another store lacks space. Must not block.</param>
    public Member Join(Action giveWay)
    {
        var member = new Member(this, giveWay);
        lock (_gate)
            _members.Add(member);
        return member;
    }

    private void Ask(Member asking)
    {
        List<Member> others = [];
        lock (_gate)
        {
            var now = time.GetTimestamp();
            if (_askedAt is { } before && time.GetElapsedTime(before, now) < Interval)
                return;
            _askedAt = now;
            foreach (var member in _members)
            {
                if (member != asking)
                    others.Add(member);
            }
        }
        foreach (var other in others)
            other.GiveWay();
    }

    private void Leave(Member member)
    {
        lock (_gate)
            _members.Remove(member);
    }

    /// <summary>One store on the disk.</summary>
    internal sealed class Member(SharedDisk disk, Action giveWay) : IDisposable
    {
        /// <summary>Asks the store to give way.</summary>
        internal Action GiveWay { get; } = giveWay;

        /// <summary>Called once a second while this store lacks space.</summary>
        public void AskOthers() => disk.Ask(this);

        /// <summary>The store has ended.</summary>
        public void Dispose() => disk.Leave(this);
    }
}
