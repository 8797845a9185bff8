using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>How often a batch descends from a root: not for a key of the leaf to which its last operation on that tree has led.</summary>
public sealed class PathTests : IDisposable
{
    private const int Keys = 20_000;
    private static readonly byte[] Value = new byte[100];
    private readonly DataFile _file = new();

    public PathTests() => _file.Pages.Apply(static batch =>
    {
        for (var key = 0; key < Keys; key++)
        {
            batch.Put(TreeId.Kv, ByteKeys.Of(key), Value);
            batch.Put(TreeId.Sessions, ByteKeys.Of(key), Value);
        }
    });

    public void Dispose() => _file.Dispose();

    /// <summary>
    /// All trees shared a path, which was dropped on a change of tree. Requests with a session, whose results are looked up between their puts, descended twice
    /// each.
    /// </summary>
    [Fact]
    public void Operations_OnTreesInTurn_KeepAPathInEach()
    {
        Assert.Equal((1L, 1L), Descents(static batch =>
        {
            for (var turn = 0; turn < 10; turn++)
            {
                Assert.True(batch.TryGet(TreeId.Sessions, ByteKeys.Of(9_000 + (turn % 2)), out _));
                batch.Put(TreeId.Kv, ByteKeys.Of(5_000 + turn), Value);
            }
        }));
    }

    [Fact]
    public void SeveralConditionsBeforeSeveralWrites_OfOneLeaf_TakeOneDescent() =>
        Assert.Equal((1L, 0L), Descents(static batch => ReadThenWrite(batch, keysApart: 1)));

    [Fact]
    public void SeveralConditionsBeforeSeveralWrites_OfManyLeaves_TakeOneDescentEach() =>
        Assert.Equal((20L, 0L), Descents(static batch => ReadThenWrite(batch, keysApart: 1_000)));

    [Fact]
    public void ConditionAndWriteOfEachKey_OfManyLeaves_TakeOneDescentPerKey() => Assert.Equal((10L, 0L), Descents(static batch =>
    {
        for (var key = 0; key < 10; key++)
        {
            Assert.True(batch.TryGet(TreeId.Kv, ByteKeys.Of(5_000 + (key * 1_000)), out _));
            batch.Put(TreeId.Kv, ByteKeys.Of(5_000 + (key * 1_000)), Value);
        }
    }));

    private static void ReadThenWrite(WriteBatch batch, int keysApart)
    {
        for (var key = 0; key < 10; key++)
            Assert.True(batch.TryGet(TreeId.Kv, ByteKeys.Of(5_000 + (key * keysApart)), out _));
        for (var key = 0; key < 10; key++)
            batch.Put(TreeId.Kv, ByteKeys.Of(5_000 + (key * keysApart)), Value);
    }

    private (long Kv, long Sessions) Descents(Action<WriteBatch> change)
    {
        var (before, after) = (default((long Kv, long Sessions)), default((long Kv, long Sessions)));
        _file.Pages.Apply(batch =>
        {
            before = Of(batch);
            change(batch);
            after = Of(batch);
        });
        return (after.Kv - before.Kv, after.Sessions - before.Sessions);

        static (long, long) Of(WriteBatch batch) => (batch.DescentsOf(TreeId.Kv), batch.DescentsOf(TreeId.Sessions));
    }
}
