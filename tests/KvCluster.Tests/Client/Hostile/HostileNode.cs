using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>A node, or a router, of a <see cref="HostileCluster"/>: what it knows, and what is wrong with it for now.</summary>
internal sealed class HostileNode(uint id)
{
    public uint Id => id;

    public string Address => $"http://node-{id}:7400";

    /// <summary>What becomes of calls, and of the streams of each kind. One may serve while the others are dead.</summary>
    public Mood Calls { get; set; }

    /// <inheritdoc cref="Calls"/>
    public Mood Maps { get; set; }

    /// <inheritdoc cref="Calls"/>
    public Mood Scans { get; set; }

    /// <inheritdoc cref="Calls"/>
    public Mood Watches { get; set; }

    /// <summary>It refuses connections.</summary>
    public bool IsDown { get; set; }

    /// <summary>What is sent to it, or by it, is lost, and nobody is told.</summary>
    public bool IsCut { get; set; }

    /// <summary>It learns of no further changes for now, so that reads that need not be up to date are not.</summary>
    public bool IsBehind { get; set; }

    /// <summary>The moment whose state such reads see.</summary>
    public long ReplicaMoment { get; set; }

    /// <summary>The map as it knows it, which it sends to clients.</summary>
    public IReadOnlyList<ShardRoute> Known { get; set; } = [];

    public void Recover() => (Calls, Maps, Scans, Watches, IsDown, IsCut, IsBehind) = (Mood.Fine, Mood.Fine, Mood.Fine, Mood.Fine, false, false, false);
}

/// <summary>What a node does with what it is asked.</summary>
internal enum Mood
{
    /// <summary>It serves it at once.</summary>
    Fine,

    /// <summary>It takes its time.</summary>
    Slow,

    /// <summary>It takes it and does nothing.</summary>
    Deaf,

    /// <summary>It serves it and never answers.</summary>
    Mute,

    /// <summary>Each time something else, also an answer after the deadline.</summary>
    Mixed,
}
