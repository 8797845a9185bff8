namespace KvCluster.Simulation;

/// <summary>One run from one seed, of the protocol's core over fakes or of whole replicas over simulated disks.</summary>
internal interface ISimulation
{
    Transcript Transcript { get; }

    /// <summary>Time in the run.</summary>
    long NowUs { get; }

    /// <summary>What the run did. A suite in which nothing happens proves nothing.</summary>
    Activity Activity { get; }

    /// <summary>Which faults took effect.</summary>
    Tally Tally { get; }

    /// <summary>The state of the replicas, for the end of a transcript.</summary>
    string Describe();

    /// <summary>Executes the whole run.</summary>
    /// <exception cref="Violation">A rule does not hold.</exception>
    /// <exception cref="InvariantException">An invariant of the protocol's code does not hold.</exception>
    void Run();
}
