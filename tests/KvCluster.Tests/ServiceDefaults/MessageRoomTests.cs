using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>With call-memory-mib 128, 24 MiB may be taken for large replies. An event message of more never fitted, and its watcher hung.</summary>
public sealed class MessageRoomTests
{
    private const long BudgetBytes = 32 << 20;

    [Fact]
    public void TryTake_OfMoreThanTheBudget_HasRoomForOneAtATime()
    {
        var budget = new ByteBudget(BudgetBytes);
        var room = new MessageRoom(budget);
        Assert.True(room.TryTake(1 << 20, out var small));
        Assert.True(room.TryTake(28 << 20, out var large));
        Assert.False(room.TryTake(28 << 20, out _));
        Assert.False(room.TryTake(1 << 20, out _));
        large.GiveBack();
        Assert.True(room.TryTake(28 << 20, out var next));
        next.GiveBack();
        small.GiveBack();
        Assert.Equal(0, budget.Taken);
    }

    /// <summary>A caller that does not read is given up, but its message is held until its write has ended.</summary>
    [Fact]
    public async Task GiveBackAfter_AWriteThatGoesOn_IsWhenItHasEnded()
    {
        var budget = new ByteBudget(BudgetBytes);
        var (room, write) = (new MessageRoom(budget), new TaskCompletionSource());
        Assert.True(room.TryTake(28 << 20, out var held));
        held.GiveBackAfter(write.Task);
        Assert.Equal(28 << 20, budget.Taken);
        write.SetException(new IOException());
        await Eventually.TrueAsync(() => budget.Taken == 0, "the room is given back");
        Assert.True(room.TryTake(28 << 20, out var next));
        next.GiveBackAfter(Task.CompletedTask);
        Assert.Equal(0, budget.Taken);
        default(MessageRoom.Held).GiveBackAfter(new TaskCompletionSource().Task);
    }

    [Fact]
    public void TryTake_OfOrdinaryMessages_StaysWithinTheBudget()
    {
        var budget = new ByteBudget(BudgetBytes);
        var room = new MessageRoom(budget);
        var held = new List<MessageRoom.Held>();
        while (room.TryTake(2 << 20, out var one))
            held.Add(one);
        Assert.Equal(12, held.Count);
        held.ForEach(static one => one.GiveBack());
        Assert.Equal(0, budget.Taken);
    }
}
