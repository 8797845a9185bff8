using KvCluster.Client.Runtime;

namespace KvCluster.Tests.Client;

/// <summary>A process that stood still for a minute gave up its watches without one attempt: "No leader ... silent for 3 seconds", though nothing was wrong.</summary>
public sealed class AwakePatienceTests
{
    private readonly ManualTime _time = new();

    [Fact]
    public void IsOver_AfterTheTimeWasTried_IsTrue()
    {
        var patience = Of(TimeSpan.FromSeconds(10));
        for (var second = 1; second <= 9; second++)
        {
            _time.Advance(TimeSpan.FromSeconds(1));
            Assert.False(patience.IsOver());
        }
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.True(patience.IsOver());
    }

    [Fact]
    public void IsOver_AfterASleep_LeavesTimeForAnAttempt()
    {
        var patience = Of(TimeSpan.FromSeconds(2));
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.False(patience.IsOver());
        _time.Advance(TimeSpan.FromMinutes(10));
        Assert.False(patience.IsOver());
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.True(patience.IsOver());
    }

    private AwakePatience Of(TimeSpan time) => new(new ClientRuntime(_time, static () => 0, TaskCreationOptions.None), time);
}
