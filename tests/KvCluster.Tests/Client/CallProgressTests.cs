using KvCluster.Client.Transport;

namespace KvCluster.Tests.Client;

public sealed class CallProgressTests
{
    /// <summary>The stages, by a way to reach each of them.</summary>
    private static readonly Dictionary<string, Func<CallProgress>> Stages = new()
    {
        ["waiting"] = () => default,
        ["sent"] = () => After(default, static (ref call) => call.TrySend()),
        ["replied"] = () => After(Stages!["sent"](), static (ref call) => call.TryReply()),
        ["ended unsent"] = () => After(default, static (ref call) => call.TryEndUnsent()),
        ["ended after it was sent"] = () => After(Stages!["sent"](), static (ref call) => call.TryEnd(out _)),
    };

    private delegate bool Move(ref CallProgress call);

    /// <summary>Each stage, and which of the transitions succeed in it.</summary>
    [Theory]
    [InlineData("waiting", true, true, false, true, true)]
    [InlineData("sent", true, false, true, false, true)]
    [InlineData("replied", false, false, false, false, false)]
    [InlineData("ended unsent", false, false, false, false, false)]
    [InlineData("ended after it was sent", false, false, false, false, false)]
    public void Stage_AllowsItsTransitionsOnly(string stage, bool isOpen, bool mayBeSent, bool mayGetAReply, bool mayEndUnsent, bool mayEnd)
    {
        var reached = Stages[stage];
        Assert.Equal(isOpen, reached().IsOpen);
        Assert.Equal(mayBeSent, Try(reached(), static (ref call) => call.TrySend()));
        Assert.Equal(mayGetAReply, Try(reached(), static (ref call) => call.TryReply()));
        Assert.Equal(mayEndUnsent, Try(reached(), static (ref call) => call.TryEndUnsent()));
        Assert.Equal(mayEnd, Try(reached(), static (ref call) => call.TryEnd(out _)));
    }

    [Fact]
    public void TryEnd_SaysWhetherTheCallWasSent()
    {
        Assert.True(Stages["waiting"]().TryEnd(out var wasSent));
        Assert.False(wasSent);
        Assert.True(Stages["sent"]().TryEnd(out wasSent));
        Assert.True(wasSent);
    }

    /// <summary>A call that ended without a reply may still be in the queue, which would send another's request under its id.</summary>
    [Theory]
    [InlineData("waiting")]
    [InlineData("sent")]
    [InlineData("ended unsent")]
    [InlineData("ended after it was sent")]
    public void Restart_OfACallWithoutAReply_IsRefused(string stage)
    {
        Assert.Throws<InvariantException>(() => Stages[stage]().Restart());
        var replied = Stages["replied"]();
        replied.Restart();
        Assert.True(replied.TrySend());
    }

    /// <summary>
    /// A call that the sender put into a message while its deadline passed was answered as not sent, and its change was repeated as certainly not applied.
    /// </summary>
    [Fact]
    public async Task TrySendAndTryEnd_AtOnce_AgreeOnWhetherTheCallWasSent()
    {
        const int Calls = 1 << 20;
        var calls = new CallProgress[Calls];
        var (isSent, isUnsent) = (new bool[Calls], new bool[Calls]);
        using var together = new Barrier(2);
        await Task.WhenAll(
            Task.Run(() =>
            {
                together.SignalAndWait();
                for (var call = 0; call < Calls; call++)
                    isSent[call] = calls[call].TrySend();
            }),
            Task.Run(() =>
            {
                together.SignalAndWait();
                for (var call = 0; call < Calls; call++)
                    isUnsent[call] = calls[call].TryEnd(out var wasSent) && !wasSent;
            }));
        Assert.DoesNotContain(Enumerable.Range(0, Calls), call => isSent[call] == isUnsent[call]);
    }

    private static bool Try(CallProgress call, Move move) => move(ref call);

    private static CallProgress After(CallProgress call, Move move)
    {
        Assert.True(move(ref call));
        return call;
    }
}
