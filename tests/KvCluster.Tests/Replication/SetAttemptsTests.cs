using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Replication;

/// <summary>What follows from the attempts of one compare-and-set, in the order in which they ended.</summary>
public sealed class SetAttemptsTests
{
    [Fact]
    public void Next_AfterTheFirstAnswer_IsCertain()
    {
        Assert.Equal([SetStep.Won], Steps(SetOutcome.Won));
        Assert.Equal([SetStep.Lost], Steps(SetOutcome.Lost));
    }

    [Fact]
    public void Next_AfterALostAnswer_RepeatsAndReadsWhenARepeatedAttemptIsLost()
    {
        Assert.Equal([SetStep.Repeat, SetStep.Won], Steps(SetOutcome.Unknown, SetOutcome.Won));
        Assert.Equal([SetStep.Repeat, SetStep.Read], Steps(SetOutcome.Unknown, SetOutcome.Lost));
        Assert.Equal([SetStep.Repeat, SetStep.Repeat, SetStep.Read], Steps(SetOutcome.Unknown, SetOutcome.Unknown, SetOutcome.Lost));
    }

    private static SetStep[] Steps(params SetOutcome[] outcomes)
    {
        var attempts = default(SetAttempts);
        return [.. outcomes.Select(outcome => attempts.Next(outcome))];
    }
}
