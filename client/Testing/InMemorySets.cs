using System.Collections.Immutable;
using System.Runtime.CompilerServices;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>The calls for sets of an <see cref="InMemoryKvClient"/>. Thread-safe.</summary>
internal sealed class InMemorySets(InMemoryStore store) : IKvSets
{
    private const int SetsMax = 64;
    private const int PrefixesMax = 16;
    private const int MembersMax = 10_000;
    private const int FacetsDefault = 10;
    private const int FacetsMax = 10_000;

    public ValueTask<SetChangeResult> AddAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(
            () => Change(key, members, options?.Condition, static (operations, set, member) => operations.SetAdd(set, member)), cancellationToken);

    public ValueTask<SetChangeResult> RemoveAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(
            () => Change(key, members, options?.Condition, static (operations, set, member) => operations.SetRemove(set, member)), cancellationToken);

    public ValueTask<SetChangeResult> RemoveAllAsync(
        KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            var applied = store.Apply(ShardRequest.OfKey(key, options?.Condition, operations => operations.SetRemove(key)));
            return new SetChangeResult(applied.MembersChanged, applied.Position);
        },
        cancellationToken);

    public ValueTask<ulong> CountAsync(KvKey key, KvReadOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => (ulong)MembersOf(key).Count, cancellationToken);

    public async IAsyncEnumerable<KvKey> ScanAsync(
        KvKey key, KvSetScan? scan = null, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var terms = scan ?? new KvSetScan();
        var members = await InMemoryStore.AnswerAsync(() => MembersOf(key), cancellationToken).ConfigureAwait(false);
        if (terms.Start.Length > KvLimits.MemberBoundBytesMax || terms.Prefix.Length > KvLimits.MemberBytesMax)
            throw Refusals.MemberTooLong();
        var left = terms.Limit == 0 ? ulong.MaxValue : terms.Limit;
        foreach (var member in SortedRange.Of(members, KeyBounds.Of(terms.Start, default, terms.Prefix), static member => (KvKey)member, terms.Reverse))
        {
            if (left-- == 0)
                yield break;
            cancellationToken.ThrowIfCancellationRequested();
            yield return member;
        }
    }

    public ValueTask<IntersectResult> IntersectAsync(KvIntersection intersection, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => Intersect(intersection), cancellationToken);

    private SetChangeResult Change(KvKey key, IEnumerable<KvKey> members, KvCondition? condition, Action<KvOperations, KvKey, KvKey> change)
    {
        ArgumentNullException.ThrowIfNull(members);
        var count = 0;
        var request = ShardRequest.OfKey(key, condition, operations =>
        {
            foreach (var member in members)
            {
                // Without a member all would be removed.
                RequestChecks.Member(member);
                change(operations, key, member);
                count++;
            }
        });
        if (count == 0)
            throw Refusals.BadRequest("The request names no member. Nothing was applied.");
        if (count > KvLimits.KeysMax)
            throw Refusals.TooManyOperations(KvLimits.KeysMax);
        var applied = store.Apply(request with { IsOfMembers = true });
        return new SetChangeResult(applied.MembersChanged, applied.Position);
    }

    private ImmutableSortedSet<KvKey> MembersOf(KvKey key)
    {
        RequestChecks.Key(key);
        return store.Read(store.IndexOf(key)).State.FindSet(key)?.Members ?? ImmutableSortedSet<KvKey>.Empty;
    }

    private IntersectResult Intersect(KvIntersection intersection)
    {
        ArgumentNullException.ThrowIfNull(intersection);
        Check(intersection);
        var view = store.Read(store.IndexOf(intersection.Keys[0]));
        CheckIn(view.Shard, intersection);
        var sets = intersection.Keys.Select(key => view.State.FindSet(key)?.Members ?? ImmutableSortedSet<KvKey>.Empty)
            .OrderBy(static set => set.Count).ToList();
        List<KvKey> common = [.. sets[0].Where(member => sets.TrueForAll(set => set.Contains(member)))];
        var behind = common.Where(member => member.CompareTo(intersection.Start) >= 0).ToList();
        var facetsMax = intersection.FacetsMax == 0 ? FacetsDefault : intersection.FacetsMax;
        return new IntersectResult(
            [.. behind.Take(intersection.Limit)],
            intersection.Limit > 0 && behind.Count > intersection.Limit,
            (ulong)common.Count,
            [.. intersection.FacetPrefixes.Select(prefix => FacetsOf(view.State, prefix, common, facetsMax))],
            view.Position);
    }

    private static void Check(KvIntersection intersection)
    {
        if (intersection.Keys.Count is 0 or > SetsMax)
            throw Refusals.BadRequest($"An intersection is of 1 to {SetsMax} sets.");
        if (intersection.FacetPrefixes.Count > PrefixesMax)
            throw Refusals.BadRequest($"An intersection has at most {PrefixesMax} facet prefixes.");
        if (intersection.Limit is < 0 or > MembersMax || intersection.FacetsMax is < 0 or > FacetsMax)
            throw Refusals.BadRequest($"A page has at most {MembersMax} members, and a prefix at most {FacetsMax} facets.");
        if (intersection.Start.Length > KvLimits.MemberBoundBytesMax)
            throw Refusals.MemberTooLong();
        foreach (var key in intersection.Keys.Concat(intersection.FacetPrefixes))
            RequestChecks.Key(key);
    }

    private static void CheckIn(Shard shard, KvIntersection intersection)
    {
        foreach (var key in intersection.Keys)
        {
            if (!shard.Owns(key))
                throw shard.DiffersFrom(key);
        }
        foreach (var prefix in intersection.FacetPrefixes)
        {
            var end = prefix.PrefixEnd;
            if (!shard.Owns(prefix) || (!shard.End.IsEmpty && (end.IsEmpty || end.CompareTo(shard.End) > 0)))
                throw shard.DiffersFrom(shard.Owns(prefix) ? shard.End : prefix);
        }
    }

    // The largest first, and among equal ones the one with the lesser key.
    private static FacetsResult FacetsOf(ShardState state, KvKey prefix, List<KvKey> common, int facetsMax)
    {
        var found = state.SetsWithin(KeyBounds.Of(default, default, prefix))
            .Select(set => new FacetResult(set.Key, (ulong)common.Count(set.Members.Contains)))
            .Where(static facet => facet.Count > 0)
            .ToList();
        return new FacetsResult([.. found.OrderByDescending(static facet => facet.Count).Take(facetsMax)], (ulong)found.Count);
    }
}
