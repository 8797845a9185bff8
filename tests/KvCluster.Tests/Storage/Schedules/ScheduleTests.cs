using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>
/// The engine's parts that threads share without a lock, in all orders of the threads' steps with few preemptions, and in others by chance. The scenarios run
/// over the compiled engine with switch points (<see cref="SteppedEngine"/>). One class, so that one run follows another.
/// </summary>
public sealed class ScheduleTests(ITestOutputHelper output)
{
    // In a long run one preemption more.
    private static int More => Seeds.IsLong ? 1 : 0;

    [Fact]
    public void WorkThread_PostedToWhileItParks_RunsEachItemOnce() => All(ThreadScenarios.WorkThread, 1 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Mailbox_FilledDuringATurn_IsEmptied() => All(ThreadScenarios.Mailbox, 2 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Requests_AddedAndTaken_AreAnsweredOnce() => All(ThreadScenarios.Requests, 1 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Request_GivenUpAtAnyMoment_IsAnsweredOnce() => All(ThreadScenarios.RequestGivenUp, 1 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Reader_BesideAPublication_SeesOneState() => All(PageScenarios.Publication, 2 + More, atAccesses: true, runsMin: 500);

    [Fact]
    public void Reader_InASlotUsedBefore_SeesOneState() => All(PageScenarios.SlotUsedAgain, 2 + More, atAccesses: true, runsMin: 300);

    [Fact]
    public void Readers_OfTheSameSlot_SeeOneState() => Some(PageScenarios.TwoReaders, 300, changes: 3);

    [Fact]
    public void Reader_BesideASwap_SeesOneState() => All(PageScenarios.Swap, 1 + More, atAccesses: true, runsMin: 30);

    [Fact]
    public void Readers_BesideACheckpoint_SeeOneState() => All(PageScenarios.Checkpoint, 1 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Readers_BesideACheckpointOfBothMetaPages_SeeOneState() =>
        All(PageScenarios.CheckpointOfBothMetaPages, 1 + More, atAccesses: true, runsMin: 100);

    [Fact]
    public void Operations_BesideACheckpoint_ShowOneState() =>
        All(PageScenarios.CheckpointOfBothMetaPages, 1 + More, atAccesses: false, runsMin: 100);

    [Fact]
    public void Readers_BesideACheckpoint_ByChance_SeeOneState() => Some(PageScenarios.CheckpointOfBothMetaPages, 300, changes: 3);

    [Fact]
    public void Writes_OfAWholeStore_AreAnsweredOnceAndPublishedBefore() => Some(StoreScenarios.GroupCommit, 300, changes: 3);

    private void All(Exploration.Scenario scenario, int preemptionsMax, bool atAccesses, int runsMin)
    {
        var runs = SteppedEngine.Call<int>(RunAll, NameOf(scenario), preemptionsMax, atAccesses, runsMin);
        output.WriteLine($"{runs} orders");
        // With fewer there are no switch points.
        Assert.InRange(runs, runsMin, int.MaxValue);
    }

    private void Some(Exploration.Scenario scenario, int seeds, int changes) =>
        output.WriteLine($"{SteppedEngine.Call<int>(RunSome, NameOf(scenario), seeds, changes)} orders");

    private static int RunAll(string scenario, int preemptionsMax, bool atAccesses, int runsMin) =>
        Exploration.All(Named(scenario), preemptionsMax, atAccesses, runsMin);

    private static int RunSome(string scenario, int seeds, int changes) => Exploration.Some(Named(scenario), seeds, changes);

    private static string NameOf(Exploration.Scenario scenario) => $"{scenario.Method.DeclaringType!.FullName} {scenario.Method.Name}";

    private static Exploration.Scenario Named(string name)
    {
        var (type, method) = name.Split(' ') is [var first, var second] ? (first, second) : throw new ArgumentException(name, nameof(name));
        return typeof(ScheduleTests).Assembly.GetType(type, throwOnError: true)!
            .GetMethod(method, System.Reflection.BindingFlags.Static | System.Reflection.BindingFlags.Public, [typeof(Schedule)])!
            .CreateDelegate<Exploration.Scenario>();
    }
}
