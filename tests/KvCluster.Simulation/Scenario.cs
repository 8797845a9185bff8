namespace KvCluster.Simulation;

/// <summary>A named kind of run.</summary>
/// <param name="Name">As given to <c>--scenario</c>.</param>
/// <param name="Faults">The faults that it tests, as names and ranges: F1 F3-F5.</param>
/// <param name="Weight">How often the suite runs it, relative to the others.</param>
/// <param name="Create">Creates a run from a seed, with an injected bug or none, detailed or not.</param>
internal sealed record Scenario(string Name, string Faults, int Weight, Func<int, InjectedBug, bool, ISimulation> Create)
{
    /// <summary>Whether it tests a fault such as F1.</summary>
    public bool IsAbout(string fault) => fault.StartsWith('F') && int.TryParse(fault.AsSpan(1), out var number) && Faults.Split(' ').Any(range =>
    {
        var ends = range.Split('-');
        return number >= NumberOf(ends[0]) && number <= NumberOf(ends[^1]);
    });

    private static int NumberOf(string fault) => int.Parse(fault.AsSpan(1));
}
