namespace KvCluster.Tests.Client.Hostile;

/// <summary>What happened in some runs. One in which nothing went wrong, or nothing went well, would prove nothing.</summary>
internal sealed class HostileTally
{
    public int Runs { get; set; }

    public int ClosedInProgress { get; set; }

    public int GivenUp { get; set; }

    public int Applied { get; set; }

    public int NotApplied { get; set; }

    public int Unknown { get; set; }

    public int ConditionsFailed { get; set; }

    public int Reads { get; set; }

    public int ReadsFailed { get; set; }

    public int Scans { get; set; }

    public int Watched { get; set; }

    public override string ToString() => $"{Runs} runs: {Applied} changes applied, {NotApplied} not, {Unknown} unknown, {ConditionsFailed} conditions failed; "
        + $"{Reads} reads, {ReadsFailed} failed, {Scans} scans, {Watched} watched changes; {GivenUp} calls given up, {ClosedInProgress} clients closed in "
        + "progress";

    /// <summary>Whether everything has happened at least once.</summary>
    public bool IsWhole => new[] { ClosedInProgress, GivenUp, Applied, NotApplied, Unknown, ConditionsFailed, Reads, ReadsFailed, Scans, Watched }
        .All(static count => count > 0);
}
