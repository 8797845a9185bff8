using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>Compares cursors with the model: seeks, both directions, bounds.</summary>
public sealed class CursorTests
{
    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "3")]
    public void Cursor_BetweenBoundsOfLargeEntries_VisitsWhatTheModelHas(string profile) => Cursor_BetweenBounds_VisitsWhatTheModelHas(profile);

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void Cursor_BetweenBounds_VisitsWhatTheModelHas(string profile) => Seeds.Run(2, random =>
    {
        using var store = Filled(profile, random);
        using var snapshot = store.Store.Roots.OpenSnapshot();
        var all = store.Published[TreeId.Kv];
        for (var i = 0; i < 60; i++)
        {
            var (lower, upper) = (Bound(store, profile, random), Bound(store, profile, random));
            var expected = all.Keys.Where(key => (lower is null || ByteKeys.Order.Compare(key, lower) >= 0)
                && (upper is null || ByteKeys.Order.Compare(key, upper) < 0)).ToList();
            var forwards = new List<byte[]>();
            var cursor = snapshot.Cursor(TreeId.Kv, lower, upper);
            while (cursor.MoveNext())
                forwards.Add(cursor.Key.ToArray());
            AssertKeys(expected, forwards);
            var backwards = new List<byte[]>();
            cursor = snapshot.Cursor(TreeId.Kv, lower, upper);
            while (cursor.MovePrevious())
                backwards.Add(cursor.Key.ToArray());
            expected.Reverse();
            AssertKeys(expected, backwards);
        }
    });

    [Theory]
    [MemberData(nameof(KeyProfile.Names), MemberType = typeof(KeyProfile))]
    public void Seek_ThenSteps_FollowTheModel(string profile) => Seeds.Run(2, random =>
    {
        using var store = Filled(profile, random);
        using var snapshot = store.Store.Roots.OpenSnapshot();
        var keys = store.Published[TreeId.Kv].Keys.ToArray();
        var cursor = snapshot.Cursor(TreeId.Kv);
        for (var i = 0; i < 200; i++)
        {
            var target = Bound(store, profile, random) ?? [0];
            var position = Array.FindIndex(keys, key => ByteKeys.Order.Compare(key, target) >= 0);
            Assert.Equal(position >= 0, cursor.Seek(target));
            for (var step = 0; position >= 0 && step < 5; step++)
            {
                AssertKeys([keys[position]], [cursor.Key.ToArray()]);
                var forwards = random.Next(2) == 0;
                position += forwards ? 1 : -1;
                Assert.Equal(position >= 0 && position < keys.Length, forwards ? cursor.MoveNext() : cursor.MovePrevious());
                position = position < keys.Length ? position : -1;
            }
        }
    });

    // Where several leaves were between the bound and the key that was sought, the cursor said that nothing was before it.
    [Theory]
    [InlineData(1)]
    [InlineData(2_000)]
    public void Seek_BeyondTheUpperBound_ThenMovePrevious_IsAtTheLastKey(int valueBytes)
    {
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (byte key = 1; key <= 40; key++)
                batch.Put(TreeId.Kv, [key], new byte[valueBytes]);
        });
        store.Publish();
        using var snapshot = store.Store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv, [], [2]);
        Assert.False(cursor.Seek([40]));
        Assert.True(cursor.MovePrevious());
        Assert.Equal([1], cursor.Key.ToArray());
    }

    [Fact]
    public void Cursor_OfAnEmptyTree_EndsAtOnce()
    {
        using var store = new ModelStore();
        using var snapshot = store.Store.Roots.OpenSnapshot();
        Assert.False(snapshot.Cursor(TreeId.Kv).MoveNext());
        Assert.False(snapshot.Cursor(TreeId.Kv).MovePrevious());
        Assert.False(snapshot.Cursor(TreeId.Kv).Seek([1]));
        Assert.False(snapshot.TryGet(TreeId.Kv, [1], out _));
    }

    private static ModelStore Filled(string profile, Random random)
    {
        var keys = KeyProfile.Of(profile);
        var store = new ModelStore();
        for (var round = 0; round < 2; round++)
        {
            store.Batch(batch =>
            {
                for (var i = 0; i < 700; i++)
                    batch.Put(TreeId.Kv, keys.Key(random), keys.Value(random));
            });
            store.Publish();
            if (round == 0)
                store.Checkpoint();
        }
        return store;
    }

    private static byte[]? Bound(ModelStore store, string profile, Random random) => random.Next(4) switch
    {
        0 => null,
        1 => store.Published[TreeId.Kv].Keys.ElementAt(random.Next(store.Published[TreeId.Kv].Count)),
        2 => [.. store.Published[TreeId.Kv].Keys.ElementAt(random.Next(store.Published[TreeId.Kv].Count)), 0],
        _ => KeyProfile.Of(profile).Key(random),
    };

    private static void AssertKeys(List<byte[]> expected, List<byte[]> found)
    {
        if (expected.Count != found.Count || !expected.Zip(found).All(static pair => pair.First.AsSpan().SequenceEqual(pair.Second)))
            Assert.Fail($"Expected {string.Join(", ", expected.Select(key => ByteKeys.Print(key)))}; "
                + $"found {string.Join(", ", found.Select(key => ByteKeys.Print(key)))}.");
    }
}
