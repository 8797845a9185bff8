using KvCluster.Disk;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Control;

/// <summary>
/// The slots of the control file were written in turn, so a reported promise was in one slot only. If a bit flipped there later, the replica opened
/// with the promise before, and could obey or elect a leader that it had promised not to.
/// </summary>
public sealed class ControlFileTests : IDisposable
{
    private const string Path = "/control";
    private static readonly ControlState Initial =
        new() { ReplicaId = new(1), Shard = new(1), PromisedEpoch = 1, Acknowledged = Etag(1, 9), Committed = Etag(1, 9) };
    private readonly SimulatedDisk _disk = new();

    public static TheoryData<string> Bindings => new(Binding.Keys);

    private static Dictionary<string, Func<ControlState, ControlState>> Binding { get; } = new()
    {
        ["promised epoch"] = state => state with { PromisedEpoch = 7 },
        ["promised leader"] = state => state with { PromisedLeader = new(7) },
        ["promised incarnation"] = state => state with { PromisedIncarnation = 7 },
        ["longest lease"] = state => state with { LeaseLongestMs = 700 },
        ["recovery"] = state => state with { Recovery = 7 },
        ["removed"] = state => state with { Removed = true },
        ["acknowledged, lowered before a cut"] = state => state with { Acknowledged = Etag(1, 5) },
        ["mark of a loss"] = state => state with { Acknowledged = Etag(1, ulong.MaxValue) },
    };

    public void Dispose() => _disk.Dispose();

    [Theory]
    [MemberData(nameof(Bindings))]
    public void Write_HardState_SurvivesAFlippedBitInEitherSlot(string name)
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

    /// <summary>The file has whole milliseconds. A replica that waited for less than it has granted could elect a leader too early.</summary>
    [Fact]
    public void Write_LeaseOfAFraction_IsRoundedUp()
    {
        Write(Initial with { LeaseLongestUs = 1_001 });
        using var opened = ControlFile.TryOpen(_disk, Path)!;
        Assert.Equal((2L, 2_000L), (opened.State.LeaseLongestMs, opened.State.LeaseLongestUs));
    }

    [Fact]
    public void Write_ProgressOnly_TakesOneWriteAndAPromiseTwo()
    {
        using var control = ControlFile.Create(_disk, Path, Initial);
        Assert.Equal(
            1, CallsOf(() => control.Write(Initial with { Committed = Etag(1, 20), Acknowledged = Etag(1, 20), Generation = 3, CoordinatorRevision = 8 })));
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
            // This state will be reported now, so it must stay.
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
    public void Settle_OneSlotDamaged_RepairsIt()
    {
        Write(Initial with { PromisedEpoch = 7 });
        _disk.FlipBit(Path, 32);
        using (var opened = ControlFile.TryOpen(_disk, Path)!)
            opened.Settle();
        using var again = ControlFile.TryOpen(_disk, Path)!;
        Assert.Equal((7ul, 2), (again.State.PromisedEpoch, again.SlotsValid));
    }

    // A write of the control file that found no space ended the replica. The sequence number had already been raised, so the next write would have
    // overwritten the slot with the newest state.
    [Theory]
    [InlineData(1, false, 1)]
    [InlineData(2, false, 7)]
    [InlineData(1, true, 1)]
    [InlineData(2, true, 7)]
    public void Write_NoRoomForASlot_KeepsTheNewestStateAndCanBeRepeated(int fullWrite, bool damages, ulong openedMeanwhile)
    {
        var wanted = Initial with { PromisedEpoch = 7 };
        using (var control = ControlFile.Create(_disk, Path, Initial))
        {
            _disk.SyncDirectory("/");
            var writes = 0;
            _disk.Refuse = (operation, path) =>
                operation == "Write" && ++writes >= fullWrite ? new StorageIoException(operation, path, "no space left", isDiskFull: true) : null;
            // The write is tried several times while there is no space.
            for (var attempt = 0; attempt < 3; attempt++)
            {
                Assert.True(Assert.Throws<StorageIoException>(() => control.Write(wanted)).IsDiskFull);
                using var machineThatDied = _disk.Copy();
                // Damage the slot that does not hold the newest state of the new file, which has sequence 2.
                if (damages)
                    machineThatDied.FlipBit(Path, (fullWrite == 1 ? ControlFile.SlotBytes : 0) + 32);
                using var opened = ControlFile.TryOpen(machineThatDied, Path)!;
                Assert.Equal(openedMeanwhile, opened.State.PromisedEpoch);
            }
            _disk.Refuse = null;
            control.Write(wanted);
        }
        foreach (var slot in (int[])[0, 1])
        {
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
            using (var opened = ControlFile.TryOpen(_disk, Path)!)
                Assert.Equal((wanted, 1), (opened.State, opened.SlotsValid));
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
        }
    }

    // Until the retry, the former state of the damaged slot exists nowhere else. So even a later state without a promise must be written to both slots.
    [Fact]
    public void Write_ProgressAfterOneThatFoundNoRoom_PutsHardStateInBothSlots()
    {
        var promised = Initial with { PromisedEpoch = 7 };
        using (var control = ControlFile.Create(_disk, Path, promised))
        {
            _disk.Fault = call => call.Operation == "Write" ? DiskFault.NoRoom : DiskFault.None;
            Assert.Throws<StorageIoException>(() => control.Write(promised with { Committed = Etag(1, 20) }));
            _disk.Fault = null;
            Assert.Equal(2, CallsOf(() => control.Write(promised with { Committed = Etag(1, 21) })));
        }
        foreach (var slot in (int[])[0, 1])
        {
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
            using (var opened = ControlFile.TryOpen(_disk, Path)!)
                Assert.Equal(7ul, opened.State.PromisedEpoch);
            _disk.FlipBit(Path, (slot * ControlFile.SlotBytes) + 32);
        }
    }

    // A write that fails in the page cache is read back as the newest, but is torn on the disk. The first write after the open overwrote the other
    // slot, the only sound one on the disk. If power was lost during it, neither slot was sound.
    [Fact]
    public void Settle_PowerLostDuringAnyWriteAfterOneThatFailedInTheCache_LeavesASoundSlot()
    {
        for (var crash = 1; ; crash++)
        {
            using var disk = new SimulatedDisk { HasDirect = false };
            var torn = new HashSet<long>();
            long? underWay = null;
            var fault = DiskFault.None;
            // A write leaves its slot torn until it has succeeded.
            disk.Fault = call =>
            {
                if (call.Operation != "Write")
                    return DiskFault.None;
                if (underWay is { } written)
                    torn.Remove(written);
                torn.Add(call.Offset);
                underWay = fault == DiskFault.None ? call.Offset : null;
                return fault;
            };
            using (var control = ControlFile.Create(disk, Path, Initial))
            {
                disk.SyncDirectory("/");
                fault = DiskFault.SyncLosesData;
                Assert.Throws<StorageIoException>(() => control.Write(Initial with { PromisedEpoch = 7 }));
            }
            fault = DiskFault.None;
            using (var opened = ControlFile.TryOpen(disk, Path)!)
            {
                Assert.Equal(7ul, opened.State.PromisedEpoch);
                disk.CrashAtCall = disk.Calls + crash;
                if (Record.Exception(opened.Settle) is null)
                {
                    Assert.True(crash > 2, $"Settle made only {crash - 1} calls.");
                    return;
                }
            }
            Assert.True(disk.IsOff);
            disk.Fault = null;
            disk.Restart(UnsyncedWrites.Dropped);
            foreach (var offset in torn)
                disk.MakeUnreadable(Path, offset, ControlFile.SlotBytes);
            using var again = ControlFile.TryOpen(disk, Path);
            Assert.True(again is not null, $"After a power loss at call {crash} neither slot is sound.");
        }
    }

    private static Etag Etag(ulong epoch, ulong change) => new(epoch, change);

    private int CallsOf(Action action)
    {
        var before = _disk.Calls;
        action();
        return _disk.Calls - before;
    }

    // Progress is written to one slot only, in place of a promise there.
    private void Write(ControlState binding)
    {
        using var control = ControlFile.Create(_disk, Path, Initial);
        control.Write(Initial with { Committed = Etag(1, 5) });
        control.Write(binding);
    }
}
