using KvCluster.Storage.Encoding;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>
/// Sets at the bounds between a value and a tree, and what is particular to large ones. Random changes are in <see cref="PageStoreModelTests"/>.
/// </summary>
public sealed class SetTests
{
    private static readonly byte[] Key = [7];

    /// <summary>A value holds up to 2,048 bytes: with the header, 99 members of 18 bytes and 2 for the end of each leave 44 for another one.</summary>
    [Theory]
    [InlineData(42, false)]
    [InlineData(43, true)]
    public void SetAdd_AtTheBoundOfAValue_PromotesBehindIt(int memberBytes, bool isPromoted)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var member = 0; member < 99; member++)
                batch.AddMember(Key, Member(member, 18));
        });
        store.Publish();
        Assert.False(IsPromoted(store));
        store.Batch(batch => batch.AddMember(Key, Member(99, memberBytes)));
        store.Publish();
        Assert.Equal(isPromoted, IsPromoted(store));
        store.CheckEverywhere();
    }

    /// <summary>Members that need 1,025 bytes as a value stay in a tree, and with 1,024 bytes they leave it: 24, 49 times 20, and the last one.</summary>
    [Theory]
    [InlineData(18, false)]
    [InlineData(19, true)]
    public void SetRemove_AtHalfTheBound_Demotes(int memberBytes, bool isPromoted)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var member = 0; member < 49; member++)
                batch.AddMember(Key, Member(member, 18));
            batch.AddMember(Key, Member(49, memberBytes));
            batch.AddMember(Key, Member(50, 1_030));
            Assert.True(batch.IsPromoted(Key));
            batch.RemoveMember(Key, Member(50, 1_030));
            Assert.Equal(isPromoted, batch.IsPromoted(Key));
        });
        store.Publish();
        store.CheckEverywhere();
    }

    /// <summary>A part of a set is removed from its first member on: small sets stay values, and a tree is demoted when little is left of it.</summary>
    [Theory]
    [InlineData(20, 7, false, false)]
    [InlineData(20, 20, false, false)]
    [InlineData(4_000, 1, true, true)]
    [InlineData(4_000, 3_000, true, true)]
    [InlineData(4_000, 3_960, true, false)]
    [InlineData(4_000, 4_000, true, false)]
    public void SetDelete_OfAPart_LeavesTheOthersAndTheirNumber(int count, int removed, bool wasPromoted, bool isPromoted)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var member = 0; member < count; member++)
                batch.AddMember(Key, Member(member, 18));
        });
        store.Publish();
        store.Checkpoint();
        Assert.Equal(wasPromoted, IsPromoted(store));
        store.OpenReader();
        store.Batch(batch =>
        {
            batch.DeleteMembers(Key, Member(removed, 18));
            Assert.Equal(count - removed, batch.Sets.TryGetValue(Key, out var left) ? left.Members.Count : 0);
            batch.DeleteMembers(Key, Member(removed, 18));
            batch.DeleteMembers([8], Member(removed, 18));
        });
        store.Publish();
        Assert.Equal(isPromoted, IsPromoted(store));
        store.CheckEverywhere();
        store.Batch(batch => batch.AddMember(Key, Member(0, 18)));
        store.Publish();
        store.CheckEverywhere();
    }

    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    [InlineData(8)]
    [InlineData(9)]
    [InlineData(1_992)]
    [InlineData(2_022)]
    [InlineData(2_023)]
    [InlineData(2_047)]
    [InlineData(2_048)]
    public void Member_OfEachLength_IsAddedFoundAndRemoved(int bytes)
    {
        using var store = new ModelStore();
        foreach (var key in (byte[][])[Key, new byte[2_048]])
        {
            var members = Enumerable.Range(0, 9).Select(member => Member(member, bytes)).ToArray();
            store.Batch(batch => Array.ForEach(members, member => batch.AddMember(key, member)));
            store.Publish();
            store.CheckEverywhere();
            store.Batch(batch =>
            {
                foreach (var member in members)
                {
                    batch.RemoveMember(key, member);
                    batch.RemoveMember(key, member);
                }
                Assert.False(batch.Sets.ContainsKey(key));
            });
            store.Publish();
            store.CheckEverywhere();
        }
    }

    [Theory]
    [InlineData(0)]
    [InlineData(2_049)]
    public void SetAdd_KeyOrMemberBeyondItsLimits_IsRefused(int bytes)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            Assert.ThrowsAny<ArgumentException>(() => batch.AddMember(Key, new byte[bytes]));
            Assert.ThrowsAny<ArgumentException>(() => batch.RemoveMember(new byte[bytes], [1]));
        }, seal: false);
    }

    /// <summary>Two sets are filled in turn, within a batch and over checkpoints.</summary>
    [Fact]
    public void SetAdd_ToTwoLargeSetsInTurn_AddsToTheRightOne() => Seeds.Run(2, random =>
    {
        using var store = new ModelStore();
        for (var round = 0; round < 4; round++)
        {
            store.Batch(batch =>
            {
                for (var member = 0; member < 2_000; member++)
                    batch.AddMember([(byte)random.Next(2)], Member(random.Next(20_000), 12));
            });
            store.Publish();
            store.CheckEverywhere();
        }
    });

    /// <summary>A large set is removed with its key, or with a range of keys, without a copy of any of its pages. Readers still have it.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Delete_OfALargeSet_WritesNoneOfItsPages(bool asRange)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var member = 0; member < 50_000; member++)
                batch.AddMember(Key, Member(member, 12));
            batch.AddMember([8], [1]);
        });
        store.Publish();
        store.Checkpoint();
        store.Reopen();
        store.OpenReader();
        store.Batch(batch =>
        {
            if (asRange)
                batch.DeleteSets(Key, [8]);
            else
                batch.DeleteSet(Key);
            Assert.True(batch.PagesMade <= 2, $"The batch has made {batch.PagesMade} pages.");
        });
        store.Publish();
        store.CloseReader(0);
        store.CheckEverywhere();
        // The second checkpoint after it may use the pages again.
        store.Batch(batch => batch.AddMember([9], [1]));
        store.Publish();
        store.Checkpoint();
        Assert.True(store.Store.Free.FreeRuns().Sum(run => run.Count) > 50 || store.Store.FileBytes < 50 * 8_192);
        store.Store.Verify();
    }

    /// <summary>The scrub reads all pages of a large set, in whatever steps.</summary>
    [Fact]
    public void Scrub_OfALargeSetInSteps_ReadsEachPage()
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var member = 0; member < 30_000; member++)
                batch.AddMember([(byte)(member % 2)], Member(member, 30));
        });
        store.Publish();
        store.Checkpoint();
        var whole = new ScrubWalk(store.Store);
        Assert.True(whole.Step(long.MaxValue));
        var steps = new ScrubWalk(store.Store);
        var count = 1;
        while (!steps.Step(20_000))
            count++;
        Assert.True(whole.PagesChecked > 50 && count > 30, $"{whole.PagesChecked} pages were read in {count} steps.");
        // Each step begins again at the leaf of the sets and at the root of its set. The one that begins the second set reads that root for the first time.
        Assert.Equal(whole.PagesChecked + (2 * (count - 1)) - 1, steps.PagesChecked);
    }

    /// <summary>Two stores with the same members, of which one has a set as a value and the other as a tree.</summary>
    [Fact]
    public void Digest_OfSetsThatAreStoredDifferently_IsTheSame()
    {
        using var small = new ModelStore();
        using var large = new ModelStore();
        var digests = new List<string>();
        foreach (var (store, more) in new[] { (small, 0), (large, 60) })
        {
            store.Store.Apply(batch =>
            {
                for (var member = 0; member < 60 + more; member++)
                    batch.SetAdd(Key, Member(member, 18), new Etag(1, 1));
                for (var member = 60; member < 60 + more; member++)
                    batch.SetRemove(Key, Member(member, 18), new Etag(1, 1));
            });
            Assert.Equal(more > 0, IsPromoted(store));
            using var snapshot = store.Store.Roots.OpenSnapshot();
            digests.Add(Convert.ToHexString(TreeDigest.Of(snapshot)));
            using var steps = new TreeDigest(snapshot);
            byte[]? found;
            while ((found = steps.Step(100)) is null)
            {
            }
            digests.Add(Convert.ToHexString(found));
        }
        Assert.Single(digests.Distinct());
    }

    [Fact]
    public void SetValue_Malformed_IsDamage() => Seeds.Run(20, random =>
    {
        var sound = new byte[2_048];
        var writer = new SmallSetWriter(sound, 20, new Etag(1, 2));
        for (var member = 0; member < 20; member++)
            writer.Add([(byte)member, .. new byte[member]]);
        var bytes = sound[..writer.Length];
        new SetValue(bytes).Check(hasTree: false);
        bytes[16 + random.Next(48)] ^= (byte)(1 << random.Next(8));
        Assert.Throws<CorruptStoreException>(() =>
        {
            var set = new SetValue(bytes.AsSpan(0, random.Next(4) == 0 ? random.Next(25, bytes.Length) : bytes.Length));
            for (var member = 0; member < set.SmallCount; member++)
                Assert.True(set[member].Length > 0);
            set.Check(hasTree: false);
        });
    });

    [Theory]
    [InlineData(0, false)]
    [InlineData(1, true)]
    [InlineData(SetValue.BytesMax - SetValue.HeaderBytes - SetValue.MemberOverhead, true)]
    [InlineData(SetValue.BytesMax - SetValue.HeaderBytes - SetValue.MemberOverhead + 1, false)]
    public void SetValue_WithOneMemberOfALength_IsDamageBeyondTheLimits(int bytes, bool isSound)
    {
        var value = new byte[4_096];
        var writer = new SmallSetWriter(value, 1, new Etag(1, 2));
        writer.Add(new byte[bytes]);
        var length = writer.Length;
        var fault = Record.Exception(() => new SetValue(value.AsSpan(0, length)).Check(hasTree: false));
        Assert.Equal(isSound, fault is null);
        Assert.True(fault is null or CorruptStoreException, $"{fault}");
    }

    /// <summary>
    /// A value with sound members that is longer than that of any small set, in an overflow run. It passed all checks, and the removal of a member wrote beyond
    /// the writer's buffer.
    /// </summary>
    [Fact]
    public unsafe void SmallSet_WithAValueThatIsTooLong_IsDamage()
    {
        Assert.Equal(OverflowRun.InlineValueBytesMax, SetValue.BytesMax);
        using var store = new DataFile();
        var value = new byte[8_192];
        var writer = new SmallSetWriter(value, 5, new Etag(1, 1));
        for (byte member = 1; member <= 5; member++)
            writer.Add([member, .. new byte[999]]);
        var bytes = writer.Length;
        store.Pages.Apply(batch => batch.Put(TreeId.Kv, Key, value.AsSpan(0, bytes)));
        fixed (TreeRoot* trees = store.Pages.Roots.Published.Trees)
            (trees[(int)TreeId.Sets], trees[(int)TreeId.Kv]) = (trees[(int)TreeId.Kv], default);
        Assert.Throws<CorruptStoreException>(store.Pages.Verify);
        var batch = store.Pages.Begin();
        Assert.Throws<CorruptStoreException>(() => batch.SetRemove(Key, [1, .. new byte[999]], new Etag(1, 2)));
        Assert.Throws<CorruptStoreException>(() => batch.SetAdd(Key, "more"u8, new Etag(1, 2)));
        store.Pages.Roots.Abort(batch);
        using var snapshot = store.Pages.Roots.OpenSnapshot();
        Assert.Throws<CorruptStoreException>(() => snapshot.TryGetSet(Key, out _));
    }

    /// <summary>
    /// The check of a received file passed over the values of small sets: one out of order could not be found, and one without members had none.
    /// </summary>
    [Theory]
    [InlineData(-2, SetValue.HeaderBytes)]
    [InlineData(28, 'z')]
    public unsafe void Verify_OfASmallSetThatIsNotSound_FindsIt(int at, byte value)
    {
        using var store = new DataFile();
        var batch = store.Pages.Begin();
        batch.SetAdd(Key, "one"u8, new Etag(1, 1));
        batch.SetAdd(Key, "two"u8, new Etag(1, 1));
        batch.TryGet(TreeId.Sets, Key, out var stored);
        // The length of the value, directly before it because the key is short, or the first byte of the first member.
        fixed (byte* first = stored)
            first[at] = value;
        store.Pages.Roots.Seal(batch, new Etag(1, 1));
        store.Pages.Roots.Publish(new Etag(1, 1));
        Assert.Throws<CorruptStoreException>(store.Pages.Verify);
    }

    private static byte[] Member(int number, int bytes)
    {
        var member = new byte[bytes];
        for (var i = bytes - 1; i >= 0 && number > 0; i--, number >>= 8)
            member[i] = (byte)number;
        return member;
    }

    private static bool IsPromoted(ModelStore store)
    {
        using var snapshot = store.Store.Roots.OpenSnapshot();
        return snapshot.TryGetSet(Key, out var set) && set.IsPromoted;
    }
}
