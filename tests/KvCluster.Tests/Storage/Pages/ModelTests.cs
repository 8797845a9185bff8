using System.Collections.Immutable;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// Compares the trees on a real disk, of keys and of sets, with a sorted dictionary, through batches, drops, checkpoints at every stage, long readers,
/// reopening, and copies of pinned checkpoints.
/// </summary>
public sealed class ModelTests
{
    /// <summary>Sets that change all the time, so that some grow to trees and shrink again.</summary>
    private const int Sets = 4;

    /// <summary>Those that take most of the time.</summary>
    [Theory]
    [InlineData(8, 40)]
    [InlineData(3, 70000)]
    [Trait("Turn", "7")]
    public void RandomChanges_OfTheSmallestAndTheLargestEntries_ReadTheSame(int keyBytesMax, int valueBytesMax) =>
        RandomChanges_ComparedWithAModel_ReadTheSame(keyBytesMax, valueBytesMax);

    [Theory]
    [InlineData(24, 300)]
    [InlineData(200, 1100)]
    [InlineData(2048, 9000)]
    public void RandomChanges_ComparedWithAModel_ReadTheSame(int keyBytesMax, int valueBytesMax) => Seeds.Run(count: 1, random =>
    {
        using var file = new DataFile();
        var run = new ModelRun(file, random, keyBytesMax, valueBytesMax);
        for (var step = 0; step < 300; step++)
            run.Step();
        run.End();
    });

    /// <summary>One seeded history: the published state, the sealed states above it, and snapshots with their expected content.</summary>
    private sealed class ModelRun(DataFile file, Random random, int keyBytesMax, int valueBytesMax)
    {
        private readonly List<(Etag Etag, Content Content)> _unpublished = [];
        private readonly List<(ReadSnapshot Snapshot, Content Content)> _snapshots = [];
        private Content _published = new();
        private Content _durable = new();
        private Content? _frozen;
        private Checkpoint? _checkpoint;
        private (CheckpointPin Pin, Content Content)? _pin;
        private Etag _etag;
        private ulong _setChanges;
        private bool _hadLargeSet;
        private bool _hadSmallSet;

        public void Step()
        {
            switch (random.Next(20))
            {
                case < 9:
                    ChangeAndSeal();
                    break;
                case < 12:
                    Publish(random.Next(_unpublished.Count + 1));
                    break;
                case 12:
                    file.Pages.Roots.DropUnpublished();
                    _unpublished.Clear();
                    break;
                case 13 when _snapshots.Count < 5:
                    _snapshots.Add((file.Pages.Roots.OpenSnapshot(), _published));
                    break;
                case 14 when _snapshots.Count > 0:
                    CloseSnapshot(random.Next(_snapshots.Count));
                    break;
                case 15 or 16 when _checkpoint is null:
                    _frozen = _published;
                    _checkpoint = file.Begin();
                    break;
                case 17 when _checkpoint is not null:
                    Finish();
                    break;
                case 18 when _pin is null:
                    _pin = (file.Pages.Pin(), _durable);
                    break;
                case 18:
                    Unpin();
                    break;
                case 19 when random.Next(4) == 0:
                    Reopen();
                    break;
            }
            if (_checkpoint is null)
                file.Pages.Verify();
        }

        public void End()
        {
            Publish(_unpublished.Count);
            if (_checkpoint is not null)
                Finish();
            file.Checkpoint();
            file.Pages.Verify();
            _durable = _published;
            Reopen();
            file.Pages.Verify();
            Assert.True(_hadLargeSet && _hadSmallSet, "No set was checked while it was large, or none while it was small.");
        }

        private void ChangeAndSeal()
        {
            var changed = new Content(_unpublished.Count > 0 ? _unpublished[^1].Content : _published);
            var content = changed.Keys;
            var batch = file.Pages.Begin();
            var deletes = random.Next(3) == 0 ? 9 : 3;
            for (var i = random.Next(1, 120); i > 0; i--)
            {
                if (random.Next(100) == 0)
                    DeleteRange(batch, content);
                if (random.Next(50) == 0)
                    CountRange(batch.CountRange, content);
                if (random.Next(20) == 0)
                    ChangeSet(batch, changed.Sets);
                if (random.Next(10) < deletes && content.Count > 0)
                {
                    var gone = random.Next(5) == 0 ? NewKey() : content.Keys.ElementAt(random.Next(content.Count));
                    Assert.Equal(content.Remove(gone), batch.Delete(TreeId.Kv, gone));
                    continue;
                }
                var key = random.Next(4) == 0 && content.Count > 0 ? content.Keys.ElementAt(random.Next(content.Count)) : NewKey();
                var value = new byte[random.Next(8) == 0 ? random.Next(valueBytesMax + 1) : random.Next(Math.Min(valueBytesMax, 200) + 1)];
                random.NextBytes(value);
                var header = random.Next(value.Length + 1);
                batch.Put(TreeId.Kv, key, value.AsSpan(0, header), value.AsSpan(header));
                content[key] = value;
                Assert.True(batch.TryGet(TreeId.Kv, key, out var seen) && seen.SequenceEqual(value));
            }
            if (random.Next(10) == 0)
            {
                file.Pages.Roots.Abort(batch);
                return;
            }
            file.Pages.Roots.Seal(batch, ++_etag);
            _unpublished.Add((_etag, changed));
        }

        /// <summary>Adds some members, removes one or most, or removes the set.</summary>
        private void ChangeSet(WriteBatch batch, SortedDictionary<byte[], ModelSet> sets)
        {
            var number = random.Next(Sets);
            byte[] key = [(byte)number];
            var set = sets.GetValueOrDefault(key, ModelSet.Empty);
            var kind = random.Next(20);
            if (kind == 0)
            {
                Assert.Equal(sets.Remove(key), batch.SetDelete(key, default, _etag) > 0);
                return;
            }
            var removed = kind switch { < 3 => set.Members.Where(_ => random.Next(8) > 0).ToArray(), < 6 => [NewMember(), .. set.Members.Take(1)], _ => [] };
            foreach (var member in removed)
                Change(member, batch.SetRemove, set.Members.Contains(member), set.Members.Remove(member));
            for (var added = kind < 6 ? 0 : random.Next(1, 8000 / (keyBytesMax + 3)); added > 0; added--)
            {
                var member = NewMember();
                Change(member, batch.SetAdd, !set.Members.Contains(member), set.Members.Add(member));
            }
            if (set.Members.IsEmpty)
                sets.Remove(key);
            else
                sets[key] = set;

            // Half of the sets have few members.
            byte[] NewMember() => number % 2 == 0 ? [(byte)random.Next(100)] : NewKey();
            void Change(byte[] member, SetChange change, bool isChanged, ImmutableSortedSet<byte[]> members)
            {
                var etag = new Etag(1, ++_setChanges);
                Assert.Equal(isChanged, change(key, member, etag));
                if (isChanged)
                    set = new ModelSet(etag, members);
            }
        }

        private void DeleteRange(WriteBatch batch, SortedDictionary<byte[], byte[]> content)
        {
            byte[] from = random.Next(10) == 0 ? [] : NewKey(), to = random.Next(10) == 0 ? [] : NewKey();
            var gone = content.Keys.Where(key => ByteKeys.IsBetween(key, from, to)).ToArray();
            Assert.Equal((ulong)gone.Length, batch.DeleteRange(TreeId.Kv, from, to));
            foreach (var key in gone)
                content.Remove(key);
        }

        private void CountRange(CountOfRange count, SortedDictionary<byte[], byte[]> content)
        {
            byte[] from = random.Next(10) == 0 ? [] : NewKey(), to = random.Next(10) == 0 ? [] : NewKey();
            Assert.Equal((ulong)content.Keys.Count(key => ByteKeys.IsBetween(key, from, to)), count(TreeId.Kv, from, to));
        }

        private byte[] NewKey()
        {
            // Few different bytes, zeros among them, and long common prefixes, so that prefixes and heads have to be told apart.
            var key = new byte[random.Next(1, keyBytesMax + 1)];
            var alike = random.Next(2) == 0 ? random.Next(key.Length) : 0;
            for (var i = alike; i < key.Length; i++)
                key[i] = (byte)(random.Next(3) == 0 ? 0 : random.Next(256));
            return key;
        }

        private void Publish(int count)
        {
            if (count == 0)
                return;
            file.Pages.Roots.Publish(_unpublished[count - 1].Etag);
            _published = _unpublished[count - 1].Content;
            _unpublished.RemoveRange(0, count);
            using var snapshot = file.Pages.Roots.OpenSnapshot();
            Check(snapshot, _published);
        }

        private void Finish()
        {
            _checkpoint!.Write();
            file.Pages.FinishCheckpoint(_checkpoint);
            _checkpoint = null;
            _durable = _frozen!;
            using var snapshot = file.Pages.Roots.OpenSnapshot();
            Check(snapshot, _published);
        }

        /// <summary>Whatever was written since, a copy of the pinned checkpoint's pages is a complete store.</summary>
        private void Unpin()
        {
            using (_pin!.Value.Pin)
            using (var copy = file.Copy(_pin.Value.Pin))
            {
                copy.Verify();
                using var snapshot = copy.Roots.OpenSnapshot();
                Assert.Equal(_pin.Value.Pin.CheckpointPosition.Etag, snapshot.Etag);
                Check(snapshot, _pin.Value.Content);
            }
            _pin = null;
        }

        private void CloseSnapshot(int index)
        {
            Check(_snapshots[index].Snapshot, _snapshots[index].Content);
            _snapshots[index].Snapshot.Dispose();
            _snapshots.RemoveAt(index);
        }

        private void Reopen()
        {
            while (_snapshots.Count > 0)
                CloseSnapshot(0);
            if (_pin is not null)
                Unpin();
            _checkpoint = null;
            _unpublished.Clear();
            file.Reopen();
            _published = _durable;
            _etag = file.Pages.Roots.PublishedEtag;
            Assert.Equal(
                new CheckpointPosition(_etag, _etag == Etag.None ? default : new JournalPosition(_etag.Change, 4096), (uint)_etag.Change), file.Pages.Covered);
            using var snapshot = file.Pages.Roots.OpenSnapshot();
            Check(snapshot, _published);
        }

        private void Check(ReadSnapshot snapshot, Content content)
        {
            CheckKeys(snapshot, content.Keys);
            Assert.Equal((ulong)content.Sets.Count, snapshot.Count(TreeId.Sets));
            foreach (var (key, set) in content.Sets)
            {
                Assert.True(snapshot.TryGetSet(key, out var stored));
                set.CheckAll(stored, ByteKeys.Print(key));
                _hadLargeSet |= stored.IsPromoted;
                _hadSmallSet |= !stored.IsPromoted;
            }
            Assert.False(snapshot.TryGetSet([Sets], out _));
        }

        private void CheckKeys(ReadSnapshot snapshot, SortedDictionary<byte[], byte[]> content)
        {
            Assert.Equal((ulong)content.Count, snapshot.Count(TreeId.Kv));
            using (var cursor = snapshot.Cursor(TreeId.Kv))
            {
                foreach (var (key, value) in content)
                {
                    Assert.True(cursor.MoveNext());
                    Assert.True(cursor.Key.SequenceEqual(key));
                    Assert.True(cursor.Value.SequenceEqual(value));
                }
                Assert.False(cursor.MoveNext());
                foreach (var (key, _) in content.Reverse())
                {
                    Assert.True(cursor.MovePrevious());
                    Assert.True(cursor.Key.SequenceEqual(key));
                }
                Assert.False(cursor.MovePrevious());
            }
            CheckRange(snapshot, content);
            CountRange(snapshot.CountRange, content);
            var absent = NewKey();
            Assert.Equal(content.ContainsKey(absent), snapshot.TryGet(TreeId.Kv, absent, out _));
        }

        private void CheckRange(ReadSnapshot snapshot, SortedDictionary<byte[], byte[]> content)
        {
            byte[] lower = NewKey(), upper = NewKey();
            var expected = content.Keys.Where(key => ByteKeys.Order.Compare(key, lower) >= 0 && ByteKeys.Order.Compare(key, upper) < 0).ToArray();
            using var forward = snapshot.Cursor(TreeId.Kv, lower, upper);
            foreach (var key in expected)
            {
                Assert.True(forward.MoveNext());
                Assert.True(forward.Key.SequenceEqual(key));
            }
            Assert.False(forward.MoveNext());
            using var backward = snapshot.Cursor(TreeId.Kv, lower, upper);
            foreach (var key in expected.Reverse())
            {
                Assert.True(backward.MovePrevious());
                Assert.True(backward.Key.SequenceEqual(key));
            }
            Assert.False(backward.MovePrevious());
            var sought = NewKey();
            var at = Array.FindIndex(expected, key => ByteKeys.Order.Compare(key, sought) >= 0);
            Assert.Equal(at >= 0, backward.Seek(sought));
            if (at >= 0)
                Assert.True(backward.Key.SequenceEqual(expected[at]));
        }
    }

    private delegate ulong CountOfRange(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to);

    private delegate bool SetChange(ReadOnlySpan<byte> set, ReadOnlySpan<byte> member, Etag etag);

    /// <summary>What the trees hold at an etag.</summary>
    private sealed class Content
    {
        public Content() => (Keys, Sets) = (new(ByteKeys.Order), new(ByteKeys.Order));

        public Content(Content from) => (Keys, Sets) = (new(from.Keys, ByteKeys.Order), new(from.Sets, ByteKeys.Order));

        public SortedDictionary<byte[], byte[]> Keys { get; }

        public SortedDictionary<byte[], ModelSet> Sets { get; }
    }
}
