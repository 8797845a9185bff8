using KvCluster.ServiceDefaults.Calls;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>The bound of memory in a server's buffers that slow callers occupy.</summary>
public sealed class HeldMessagesTests
{
    private const int Kibibyte = 1 << 10;
    private readonly List<string> _ended = [];

    [Fact]
    public void TryHold_WithoutRoom_EndsTheOldestSlowMessage()
    {
        var held = new HeldMessages(400 * Kibibyte, patienceMs: 0);
        var (first, second, third) = (Message("first"), Message("second"), Message("third"));
        Assert.True(held.TryHold(first, 150 * Kibibyte));
        Assert.True(held.TryHold(second, 150 * Kibibyte));
        Assert.True(held.TryHold(third, 100 * Kibibyte));
        Assert.Equal(["first"], _ended);
        Assert.Equal(250 * Kibibyte, held.Bytes);
        // It is removed first and told later.
        held.Release(first);
        held.Release(second);
        held.Release(third);
        Assert.Equal(0, held.Bytes);
    }

    [Fact]
    public void TryHold_WithoutRoomAndNobodySlow_IsRefused()
    {
        var held = new HeldMessages(400 * Kibibyte);
        var first = Message("first");
        Assert.True(held.TryHold(first, 290 * Kibibyte));
        Assert.False(held.TryHold(first, 310 * Kibibyte));
        Assert.False(held.TryHold(Message("large"), 100 * Kibibyte));
        Assert.False(held.HasRoom(100 * Kibibyte));
        // The last quarter is reserved for small messages.
        Assert.True(held.TryHold(Message("small"), 60 * Kibibyte));
        Assert.Empty(_ended);
        Assert.Equal(350 * Kibibyte, held.Bytes);
    }

    [Fact]
    public void Keep_OfACompleteMessage_CountsAndIsNotEnded()
    {
        var held = new HeldMessages(400 * Kibibyte, patienceMs: 0);
        var whole = Message("whole");
        Assert.True(held.TryHold(whole, 200 * Kibibyte));
        held.Keep(whole, 390 * Kibibyte);
        Assert.False(held.TryHold(Message("next"), 20 * Kibibyte));
        Assert.Empty(_ended);
        held.Release(whole);
        Assert.Equal(0, held.Bytes);
    }

    private HeldMessage Message(string name) => new(() => _ended.Add(name));
}
