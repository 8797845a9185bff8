using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Control;

namespace KvCluster.Tests.Storage.Control;

/// <summary>
/// A control file was written slot by slot in turn, so that a promise that was reported stood in one of them only: a bit that flipped there later had the replica
/// open with the promise before, and obey or elect a leader that it had promised not to.
/// </summary>
public sealed class ControlFileTests : IDisposable
{
    private const string Path = "/control";
    private static readonly ControlState Initial = new() { ReplicaId = 1, Shard = 1, PromisedEpoch = 1, Acknowledged = Etag(1, 9), Committed = Etag(1, 9) };
    private readonly SimulatedDisk _disk = new();

    public static TheoryData<string> Bindings => new(Binding.Keys);

    private static Dictionary<string, Func<ControlState, ControlState>> Binding { get; } = new()
    {
        ["promised epoch"] = state => state with { PromisedEpoch = 7 },
        ["promised leader"] = state => state with { PromisedLeader = 7 },
        ["promised incarnation"] = state => state with { PromisedIncarnation = 7 },
        ["longest lease"] = state => state with { LeaseLongestMs = 700 },
        ["removed"] = state => state with { Removed = true },
        ["acknowledged, lowered before a cut"] = state => state with { Acknowledged = Etag(1, 5) },
        ["mark of a loss"] = state => state with { Acknowledged = Etag(1, ulong.MaxValue) },
    };

    public void Dispose() => _disk.Dispose();

    [Theory]
    [MemberData(nameof(Bindings))]
    public void Write_WhatBinds_OutlivesAFlippedBitInEitherSlot(string name)
    {
        foreach (var slot in (int[])[0, 1])
        {
            foreach (var unreadable in (bool[])[false, true])
            {
                using var test = new ControlFileTests();
                var wanted = Binding[name](Initial);
                test.Write(wanted);
                if (unreadable)
                    test._disk.MakeUnreadable(Path, slot * ControlFile.SlotBytes, 1);
                else
                    test._disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
                using var opened = ControlFile.TryOpen(test._disk, Path)!;
                Assert.Equal((wanted, 1), (opened.State, opened.SlotsValid));
            }
        }
    }

    [Fact]
    public void Write_ProgressOnly_TakesOneWriteAndAPromiseTwo()
    {
        using var control = ControlFile.Create(_disk, Path, Initial);
        Assert.Equal(1, CallsOf(() => control.Write(Initial with { Committed = Etag(1, 20), Acknowledged = Etag(1, 20), Generation = 3, CoordinatorRevision = 8 })));
        Assert.Equal(2, CallsOf(() => control.Write(control.State with { PromisedEpoch = 2 })));
        Assert.Equal(1, CallsOf(() => control.Write(control.State with { Committed = Etag(1, 21) })));
    }

    [Fact]
    public void Settle_PowerLostBetweenTheTwoWrites_HasThePromiseInBoth()
    {
        var wanted = Initial with { PromisedEpoch = 7 };
        using (var control = ControlFile.Create(_disk, Path, Initial))
        {
            _disk.SyncDirectory("/");
            _disk.CrashAtCall = _disk.Calls + 2;
            Assert.Throws<SimulatedCrashException>(() => control.Write(wanted));
        }
        _disk.Restart(UnsyncedWrites.Dropped);
        using (var opened = ControlFile.TryOpen(_disk, Path)!)
        {
            // It will be reported now, so it must stay.
            Assert.Equal(wanted, opened.State);
            opened.Settle();
            Assert.Equal(0, CallsOf(opened.Settle));
        }
        foreach (var slot in (int[])[0, 1])
        {
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
            using (var opened = ControlFile.TryOpen(_disk, Path)!)
                Assert.Equal(wanted, opened.State);
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
        }
    }

    [Fact]
    public void Settle_OneSlotDamaged_MendsIt()
    {
        Write(Initial with { PromisedEpoch = 7 });
        _disk.FlipBit(Path, 32);
        using (var opened = ControlFile.TryOpen(_disk, Path)!)
            opened.Settle();
        using var again = ControlFile.TryOpen(_disk, Path)!;
        Assert.Equal((7ul, 2), (again.State.PromisedEpoch, again.SlotsValid));
    }

    private static UInt128 Etag(ulong epoch, ulong change) => new(epoch, change);

    private int CallsOf(Action action)
    {
        var before = _disk.Calls;
        action();
        return _disk.Calls - before;
    }

    // Later progress goes to one slot, and takes the place of a binding state there.
    private void Write(ControlState binding)
    {
        using var control = ControlFile.Create(_disk, Path, Initial);
        control.Write(Initial with { Committed = Etag(1, 5) });
        control.Write(binding);
    }
}
