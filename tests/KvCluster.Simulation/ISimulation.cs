namespace KvCluster.Simulation;

/// <summary>One run from one seed: of the protocol's core over fakes, or of whole replicas over a simulated disk.</summary>
internal interface ISimulation
{
    Transcript Transcript { get; }

    /// <summary>Time in the run.</summary>
    long NowUs { get; }

    /// <summary>What the run did; a suite in which nothing happens proves nothing.</summary>
    Activity Activity { get; }

    /// <summary>Which faults took effect.</summary>
    Tally Tally { get; }

    /// <summary>What the replicas are at, for the end of a transcript.</summary>
    string Describe();

    /// <summary>Runs all of it.</summary>
    /// <exception cref="Violation">A rule does not hold.</exception>
    /// <exception cref="InvariantException">An invariant of the protocol's code does not hold.</exception>
    void Run();
}
