using System.Collections.Immutable;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>A set, and the etag of its last change.</summary>
internal sealed record ModelSet(Etag Etag, ImmutableSortedSet<byte[]> Members)
{
    public static readonly ModelSet Empty = new(Etag.None, ImmutableSortedSet.Create<byte[]>(ByteKeys.Order));

    /// <summary>Compares every member, forwards, backwards, and by name.</summary>
    public void CheckAll(StoredSet stored, string name)
    {
        Assert.Equal((Etag, (ulong)Members.Count), (stored.Etag, stored.Count));
        using var cursor = stored.Members();
        foreach (var member in Members)
        {
            if (!cursor.MoveNext() || !cursor.Member.SequenceEqual(member))
                Assert.Fail($"The set {name} ends before {ByteKeys.Print(member)}, or has others in between.");
            if (!stored.Contains(member))
                Assert.Fail($"The set {name} does not have {ByteKeys.Print(member)}.");
        }
        Assert.False(cursor.MoveNext(), $"The set {name} has more members.");
        foreach (var member in Members.Reverse())
        {
            if (!cursor.MovePrevious() || !cursor.Member.SequenceEqual(member))
                Assert.Fail($"The set {name}, backwards, ends before {ByteKeys.Print(member)}.");
        }
        Assert.False(cursor.MovePrevious(), $"The set {name}, backwards, has more members.");
        using var backwards = stored.Members();
        Assert.True(backwards.MovePrevious() && backwards.Member.SequenceEqual(Members.Max!));
    }

    /// <summary>Seeks members that are there, and others close to them, with one cursor.</summary>
    public void CheckSome(StoredSet stored, Random random)
    {
        using var cursor = stored.Members();
        for (var i = 0; i < 5; i++)
        {
            var member = Members[random.Next(Members.Count)];
            byte[] sought = random.Next(3) switch { 0 => member, 1 => [.. member[..^1], (byte)(member[^1] - 1)], _ => [.. member, (byte)random.Next(3)] };
            Assert.Equal(Members.Contains(sought), stored.Contains(sought));
            var at = Members.IndexOf(sought) is >= 0 and var index ? index : ~Members.IndexOf(sought);
            Assert.Equal(at < Members.Count, cursor.Seek(sought));
            if (at == Members.Count)
                continue;
            if (!cursor.Member.SequenceEqual(Members[at]))
                Assert.Fail($"A search for {ByteKeys.Print(sought)} has found {ByteKeys.Print(cursor.Member)} instead of {ByteKeys.Print(Members[at])}.");
            Assert.Equal(at + 1 < Members.Count, cursor.MoveNext());
        }
    }
}
