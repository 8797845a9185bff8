using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A call failed for want of space although all of it had arrived, as on thin, quota-limited and copy-on-write disks. A quiescent store that began a segment so
/// went on in the old one, behind the end that the new header states for it: everything answered from then on was gone after a restart, and the store was
/// called sound. Here any one call of a run fails so, and what was answered must be there at every later moment.
/// </summary>
public sealed class FailedButArrivedTests
{
    private const int Requests = 90;

    /// <summary>After the failure the store is looked at behind each of so many requests.</summary>
    private const int RequestsLookedAt = 6;
    private static readonly StoreOptions Options = StoreBench.SmallOptions with { SegmentBytesMax = 64 << 10, CheckpointQuiescentJournalBytes = 32 << 10 };

    /// <summary>The stride of the calls that fail. The nightly run takes all of them.</summary>
    private static readonly int Stride = Seeds.IsLong ? 1 : 5;
    private static readonly int Seed = Seeds.Given ?? (Seeds.IsLong ? Random.Shared.Next() : 29);

    [Theory]
    [InlineData("NoRoomAfterwards", false)]
    [InlineData("NoRoom", true)]
    [InlineData("NoRoom", false)]
    [InlineData("ErrorAfterwards", true)]
    [Trait("Turn", "2")]
    public void AnyCall_FailsAlthoughItArrivedInOtherModes_LosesNothingThatWasAnswered(string name, bool hasDirect) =>
        AnyCall_FailsAlthoughItArrived_LosesNothingThatWasAnswered(name, hasDirect);

    [Theory]
    [InlineData("NoRoomAfterwards", true)]
    [InlineData("ErrorAfterwards", false)]
    public void AnyCall_FailsAlthoughItArrived_LosesNothingThatWasAnswered(string name, bool hasDirect)
    {
        var fault = Enum.Parse<DiskFault>(name);
        var operations = new List<string>();
        using (var sound = new SimulatedDisk { HasDirect = hasDirect })
            new Run(sound, int.MaxValue, fault, "without a failure").Execute(operations);
        foreach (var kind in (string[])["Write /shard/control",
            "Rename /shard/state-00000001/journal", "Delete /shard/state-00000001/journal", "Resize /shard/state-00000001/journal"])
            Assert.Contains(operations, operation => operation.StartsWith(kind, StringComparison.Ordinal));
        var happened = 0;
        for (var chosen = 1 + ((int)fault % Stride); chosen <= operations.Count; chosen += Stride)
        {
            var story = $"KV_SEED={Seed}: {fault} at call {chosen} of {operations.Count}, {operations[chosen - 1]}";
            using var disk = new SimulatedDisk { HasDirect = hasDirect };
            var run = new Run(disk, chosen, fault, story);
            run.Execute();
            happened += disk.CountOf(fault);
            disk.Fault = null;
            run.Check(disk, "after a restart of the process");
            disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            run.Check(disk, "after a power loss");
        }
        Assert.True(happened > operations.Count / Stride / 2, $"The fault was injected only {happened} times.");
    }

    /// <summary>
    /// As it happened: a quiescent store goes on in a small segment, the write of its header fails for want of space although it arrived, and the store is used
    /// again.
    /// </summary>
    [Fact]
    public void QuiescentStore_HeaderOfTheNextSegmentFailedButArrived_LosesNothingAnsweredLater()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        for (var index = 0; index < 40; index++)
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(StoreBench.Text($"key-{index:00}"), new byte[1_500])).Outcome);
        var headers = 0;
        bench.Disk.Fault = call =>
            call is { Operation: "Write", Offset: 0, Bytes: SegmentHeader.BlockBytes }
                && call.Path.EndsWith(".journal", StringComparison.Ordinal) && headers++ >= 0 ? DiskFault.NoRoomAfterwards : DiskFault.None;
        for (var waited = 0; waited < 60 && headers == 0; waited++)
            Run.Pass(bench, TimeSpan.FromSeconds(1));
        Assert.True(headers > 0, "The quiescent store began no segment.");
        // Before the store looks for room and is quiescent again, which would write the header anew.
        bench.Disk.Fault = null;
        for (var index = 0; index < 20; index++)
        {
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Delete(StoreBench.Text($"key-{index:00}"))).Outcome);
            // After each: when the old segment is full, the header is written anew.
            using var dead = new StoreBench(bench.Disk.Copy(), options: Options);
            dead.Open();
            Assert.Equal(Enumerable.Range(index + 1, 39 - index).Select(left => $"key-{left:00}"), dead.ReadAllKeys().Keys);
        }
    }

    /// <summary>Requests, checkpoints, quiescent periods, changes of the hard state, and restarts of the process, at moments chosen by the seed.</summary>
    private sealed class Run(SimulatedDisk disk, int chosen, DiskFault fault, string story)
    {
        private readonly Random _random = new(Seed);
        private readonly SortedDictionary<string, string> _expected = new(StringComparer.Ordinal);

        /// <summary>What a request that got no answer may have put or, if null, deleted.</summary>
        private (string Key, string? Value)? _unknown;
        private int _calls;

        /// <summary>Until the engine has ended, or enough was looked at after the failure.</summary>
        /// <param name="operations">Gets the calls that change something.</param>
        public void Execute(List<string>? operations = null)
        {
            disk.Fault = call =>
            {
                if (!call.Changes)
                    return DiskFault.None;
                operations?.Add($"{call.Operation} {call.Path}");
                return ++_calls == chosen ? fault : DiskFault.None;
            };
            var looks = RequestsLookedAt;
            using var bench = new StoreBench(disk, Seed, Options);
            if (!TryOpen(bench))
                return;
            for (var index = 0; index < Requests && looks > 0; index++)
            {
                if (!TryRequest(bench, index))
                    return;
                if (_calls >= chosen)
                {
                    looks--;
                    using var dead = disk.Copy();
                    Check(dead, $"after request {index}");
                }
                if (index % 13 == 12)
                    _ = bench.Store.Checkpoints.RequestAsync();
                if (index % 17 == 16)
                    bench.Store.Log.WriteControl(bench.Store.Durable.Control with { LeaseLongestMs = index });
                if (index % 30 == 29)
                    Pass(bench, TimeSpan.FromSeconds(12));
                if (index % 41 != 40)
                    continue;
                bench.Close();
                if (!TryOpen(bench))
                    return;
            }
        }

        /// <summary>The store has exactly what was answered, and takes another request.</summary>
        public void Check(SimulatedDisk found, string moment)
        {
            using var bench = new StoreBench(found, options: Options);
            bench.Open();
            var held = bench.ReadAllKeys();
            var expected = new SortedDictionary<string, string>(_expected, StringComparer.Ordinal);
            if (_unknown is { } unknown && held.GetValueOrDefault(unknown.Key) == unknown.Value)
            {
                expected.Remove(unknown.Key);
                if (unknown.Value is not null)
                    expected[unknown.Key] = unknown.Value;
            }
            Assert.True(expected.SequenceEqual(held), $"{story}, {moment}: {Text(expected)} were answered, {Text(held)} are there.");
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put("after"u8, "1"u8)).Outcome);
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Delete("after"u8)).Outcome);
        }

        /// <summary>False if the engine has ended.</summary>
        private bool TryRequest(StoreBench bench, int index)
        {
            var key = $"key-{_random.Next(12):00}";
            var value = _random.Next(4) == 0 ? null : $"{index}-{new string('x', _random.Next(3_000))}";
            var answer = bench.Submit(request =>
            {
                if (value is null)
                    request.Delete(StoreBench.Text(key));
                else
                    request.Put(StoreBench.Text(key), StoreBench.Text(value));
            });
            bench.RunUntilIdle();
            for (var look = 0; look < 20 && !answer.IsCompleted; look++)
                Pass(bench, TimeSpan.FromSeconds(1));
            var outcome = answer.IsCompletedSuccessfully ? StoreBench.Answer(answer).Outcome : WriteOutcome.Stopped;
            if (outcome is WriteOutcome.Stopped or WriteOutcome.OutcomeUnknown)
            {
                _unknown = (key, value);
                Assert.True(bench.Standalone.Failure.IsCompleted && fault == DiskFault.ErrorAfterwards, $"{story}: request {index} was not answered; "
                    + $"the engine has ended: {bench.Store.Life.Failure}.");
                bench.CheckStaysDown();
                return false;
            }
            Assert.True(outcome is WriteOutcome.Applied or WriteOutcome.DiskFull or WriteOutcome.NoRoomYet, $"{story}: request {index} got {outcome}.");
            if (outcome != WriteOutcome.Applied)
                Pass(bench, TimeSpan.FromSeconds(1));
            else if (value is null)
                _expected.Remove(key);
            else
                _expected[key] = value;
            return true;
        }

        /// <summary>Opens again where there was no room, as the node does. False if the disk has failed.</summary>
        private bool TryOpen(StoreBench bench)
        {
            for (var attempt = 0; ; attempt++)
            {
                try
                {
                    bench.Open();
                    return true;
                }
                catch (StorageIoException failure) when (fault == DiskFault.ErrorAfterwards || (failure.IsDiskFull && attempt < 2))
                {
                    bench.Close();
                    if (fault == DiskFault.ErrorAfterwards)
                        return false;
                }
            }
        }

        /// <summary>Lets the store be quiescent.</summary>
        public static void Pass(StoreBench bench, TimeSpan time)
        {
            for (var passed = TimeSpan.Zero; passed < time; passed += TimeSpan.FromSeconds(1))
            {
                bench.Time.Advance(TimeSpan.FromSeconds(1));
                bench.RunUntilIdle();
            }
        }

        private static string Text(SortedDictionary<string, string> keys) => string.Join(", ", keys.Select(pair => $"{pair.Key} {pair.Value.Split('-')[0]}"));
    }
}
