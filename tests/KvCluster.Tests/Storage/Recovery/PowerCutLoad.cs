using System.Buffers.Binary;
using System.Globalization;
using KvCluster.Storage;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// Callers that write a store as fast as it answers, and what it must hold after a power cut: for each caller, exactly what its first transactions made, up to
/// one that was answered last before the cut or came after it. What a transaction does follows from its number, so nothing has to be recorded but the count of
/// those that were answered, which is kept outside of the store.
/// </summary>
internal sealed class PowerCutLoad
{
    private const int Callers = 16;
    private const int LargeValues = 8;
    private const int LargeBytes = 3 << 19;
    private readonly Caller[] _callers = [.. Enumerable.Range(0, Callers).Select(static number => new Caller(number))];
    private Task[] _running = [];
    private volatile bool _stops;
    private int _larges;

    /// <summary>Transactions of all callers that were answered or found applied after a cut.</summary>
    public long Answered => _callers.Sum(static caller => Volatile.Read(ref caller.Answered));

    /// <summary>Starts the callers, each with the transaction after its last one in the store.</summary>
    public void Start(StandaloneStore store)
    {
        _stops = false;
        _running = [.. _callers.Select(caller => Task.Run(() => WriteAsync(store, caller)))];
    }

    /// <summary>Puts large values, one behind the other in the data file.</summary>
    public async Task PutLargeAsync(StandaloneStore store)
    {
        _larges++;
        for (var number = 0; number < LargeValues; number++)
            await ChangeAsync(store, request => request.Put(LargeKey(number), LargeValue(number)));
    }

    /// <summary>Deletes every second large value, so that the data file gets holes.</summary>
    public async Task DeleteEverySecondLargeAsync(StandaloneStore store)
    {
        for (var number = 0; number < LargeValues; number += 2)
            await ChangeAsync(store, request => request.Delete(LargeKey(number)));
    }

    /// <summary>Notes what is answered by now, which a copy that is taken from now on must have.</summary>
    public void NoteAnswered()
    {
        foreach (var caller in _callers)
            caller.Noted = Volatile.Read(ref caller.Answered);
    }

    /// <summary>Waits until no caller writes any more; the store must be closed.</summary>
    public async Task StopAsync()
    {
        _stops = true;
        await Task.WhenAll(_running);
    }

    /// <summary>Compares all that a store has with what it must have, and continues from there.</summary>
    public async Task CheckAsync(StandaloneStore store, string story)
    {
        // The record that opens the epoch is committed behind all others.
        await ChangeAsync(store, static request => request.Delete("no such key"u8));
        using var snapshot = store.OpenSnapshot();
        var keys = (ulong)LargeValues / 2;
        for (var number = 0; number < LargeValues; number++)
        {
            var isThere = snapshot.TryGet(TreeId.Kv, LargeKey(number), out var large);
            Assert.True(isThere == (number % 2 != 0), $"{story}: the large value {number} is {(isThere ? "there" : "not there")}.");
            Assert.True(!isThere || KvValue.Read(large, out _).SequenceEqual(LargeValue(number)), $"{story}: the large value {number} is another one.");
        }
        foreach (var caller in _callers)
        {
            var count = snapshot.TryGet(TreeId.Kv, caller.CountKey, out var stored) ? BinaryPrimitives.ReadInt64LittleEndian(KvValue.Read(stored, out _)) : 0;
            Assert.True(
                count >= caller.Noted, $"{story}: caller {caller.Number} was answered {caller.Noted} times before, but {count} of its transactions are there.");
            Assert.True(count <= caller.Sent, $"{story}: caller {caller.Number} has sent {caller.Sent} transactions, but {count} are there.");
            caller.CatchUp(count);
            keys += (ulong)caller.Holds.Count(static transaction => transaction > 0) + (count > 0 ? 1ul : 0);
            for (var slot = 0; slot < Caller.Slots; slot++)
            {
                var isThere = snapshot.TryGet(TreeId.Kv, caller.KeyOf(slot), out stored);
                Assert.True(isThere == caller.Holds[slot] > 0, $"{story}: after {count} transactions of caller {caller.Number} its key {slot} is "
                    + $"{(isThere ? "there" : "not there")}.");
                Assert.True(!isThere || caller.IsValueOf(caller.Holds[slot], slot, KvValue.Read(stored, out _)), $"{story}: the value of key {slot} of caller "
                    + $"{caller.Number} is not that of transaction {caller.Holds[slot]}.");
            }
        }
        Assert.Equal(keys, snapshot.Count(TreeId.Kv));
    }

    private static async Task ChangeAsync(StandaloneStore store, Action<WriteRequest> fill)
    {
        while (true)
        {
            var request = WriteRequest.Rent();
            fill(request);
            if (store.TryWrite(request) is { } answer)
            {
                Assert.Equal(WriteOutcome.Applied, (await answer).Outcome);
                return;
            }
            await Task.Yield();
        }
    }

    private static byte[] LargeKey(int number) => StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"large/{number:00}"));

    private byte[] LargeValue(int number)
    {
        var value = new byte[LargeBytes];
        value.AsSpan().Fill((byte)((_larges * LargeValues) + number));
        return value;
    }

    private async Task WriteAsync(StandaloneStore store, Caller caller)
    {
        while (!_stops)
        {
            var request = WriteRequest.Rent();
            caller.Fill(request, caller.Answered + 1);
            caller.Sent = caller.Answered + 1;
            if (store.TryWrite(request) is not { } answer)
            {
                await Task.Yield();
                continue;
            }
            var outcome = (await answer).Outcome;
            if (outcome is WriteOutcome.Stopped or WriteOutcome.OutcomeUnknown)
                return;
            Assert.Equal(WriteOutcome.Applied, outcome);
            Volatile.Write(ref caller.Answered, caller.Sent);
        }
    }

    /// <summary>One caller, with keys of its own.</summary>
    private sealed class Caller(int number)
    {
        public const int Slots = 250;

        /// <summary>Transactions of which a caller puts in the first half and deletes in the second, so that the data file grows and shrinks.</summary>
        private const int Round = 160;

        private long _caughtUp;

        /// <summary>Transactions that were answered.</summary>
        public long Answered;

        public int Number => number;

        /// <summary>Those that were answered before a copy was taken.</summary>
        public long Noted { get; set; }

        /// <summary>Transactions that were sent.</summary>
        public long Sent { get; set; }

        /// <summary>For each key, the transaction that wrote it; 0 if it is not there.</summary>
        public long[] Holds { get; } = new long[Slots];

        public byte[] CountKey { get; } = StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"{number:00}/count"));

        public byte[] KeyOf(int slot) => StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"{number:00}/{slot:0000}"));

        /// <summary>Makes the request of a transaction.</summary>
        public void Fill(WriteRequest request, long transaction)
        {
            foreach (var (slot, isPut) in Changes(transaction))
            {
                if (isPut)
                    request.Put(KeyOf(slot), ValueOf(transaction, slot));
                else
                    request.Delete(KeyOf(slot));
            }
            var count = new byte[8];
            BinaryPrimitives.WriteInt64LittleEndian(count, transaction);
            request.Put(CountKey, count);
        }

        /// <summary>Takes note of transactions that the store has, and continues after them.</summary>
        public void CatchUp(long count)
        {
            for (var transaction = _caughtUp + 1; transaction <= count; transaction++)
            {
                foreach (var (slot, isPut) in Changes(transaction))
                    Holds[slot] = isPut ? transaction : 0;
            }
            (_caughtUp, Answered, Noted, Sent) = (count, count, count, count);
        }

        public bool IsValueOf(long transaction, int slot, ReadOnlySpan<byte> value) => value.SequenceEqual(ValueOf(transaction, slot));

        /// <summary>Some keys are put or, in the second half of a round, a stretch of them is deleted.</summary>
        private List<(int Slot, bool IsPut)> Changes(long transaction)
        {
            var random = new Random((int)Mixed(transaction, number));
            var first = random.Next(Slots);
            return transaction % Round >= Round / 2
                ? [.. Enumerable.Range(0, 30).Select(index => ((first + index) % Slots, false))]
                : [.. Enumerable.Range(0, 1 + random.Next(5)).Select(index => ((first + (index * 7)) % Slots, true))];
        }

        private byte[] ValueOf(long transaction, int slot)
        {
            var hash = Mixed(transaction, slot);
            var value = new byte[16 + (hash % 11 == 0 ? hash % 60_000 : hash % 2_500)];
            value.AsSpan().Fill((byte)hash);
            BinaryPrimitives.WriteInt64LittleEndian(value, transaction);
            BinaryPrimitives.WriteInt64LittleEndian(value.AsSpan(8), slot);
            return value;
        }

        private static uint Mixed(long one, long other) => (uint)((((ulong)one * 0x9E37_79B9_7F4A_7C15) ^ ((ulong)other * 0xBF58_476D_1CE4_E5B9)) >> 32);
    }
}
