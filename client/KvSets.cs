using System.Runtime.CompilerServices;
using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// The calls of a <see cref="KvClient"/> for sets. A set is a namespace of its own beside the keys, in the shard of its key: members in order, each once, 1 to
/// 1,024 bytes. Thread-safe.
/// </summary>
public sealed class KvSets : IKvSets
{
    private readonly ClientCalls _calls;

    internal KvSets(ClientCalls calls) => _calls = calls;

    /// <summary>Adds members, up to 10,000. If the set has all of them, nothing changes.</summary>
    /// <param name="key">The key of the set.</param>
    /// <param name="members">Each 1 to 1,024 bytes.</param>
    /// <param name="options">What is special about the change; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key or a member is empty or too long, or there are too many members; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<SetChangeResult> AddAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(members);
        var request = new SetAddRequest { Key = key.ToByteString(), Members = { members.Select(static member => member.ToByteString()) } };
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        var response = SetAddResponse.Parser.ParseFrom(
            await _calls.ChangeAsync(Method.SetAdd, key, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false));
        return new SetChangeResult(response.Added, _calls.See(response.Position));
    }

    /// <summary>Removes members, up to 10,000. If the set has none of them, nothing changes.</summary>
    /// <param name="key">The key of the set.</param>
    /// <param name="members">Each 1 to 1,024 bytes.</param>
    /// <param name="options">What is special about the change; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key or a member is empty or too long, or there are too many members; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<SetChangeResult> RemoveAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(members);
        var request = new SetRemoveRequest { Key = key.ToByteString(), Members = { members.Select(static member => member.ToByteString()) } };
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        return await SendRemovalAsync(key, request, options, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Removes a set with all its members.</summary>
    /// <param name="key">The key of the set.</param>
    /// <param name="options">What is special about the change; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public ValueTask<SetChangeResult> RemoveAllAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        var request = new SetRemoveRequest { Key = key.ToByteString(), All = true };
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        return SendRemovalAsync(key, request, options, cancellationToken);
    }

    /// <summary>The number of members; 0 if there is no such set.</summary>
    /// <param name="key">The key of the set.</param>
    /// <param name="options">
    /// What is special about the read; null means the mode <see cref="KvClientOptions.Read"/>. A <see cref="KvReadMode"/> can be passed as it is.
    /// </param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<ulong> CountAsync(KvKey key, KvReadOptions? options = null, CancellationToken cancellationToken = default)
    {
        var request = new SetCountRequest { Key = key.ToByteString(), Read = _calls.ReadOptionsOf(options?.Read, key.Span) };
        var response = SetCountResponse.Parser.ParseFrom(
            await _calls.ReadAsync(Method.SetCount, key, request, request.Read, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false));
        _calls.See(response.Position);
        return response.Count;
    }

    /// <summary>The members in order, page by page, each page from the state at its own moment.</summary>
    /// <param name="key">The key of the set.</param>
    /// <param name="scan">Which members; null: all.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async IAsyncEnumerable<KvKey> ScanAsync(
        KvKey key, KvSetScan? scan = null, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var terms = scan ?? new KvSetScan();
        var left = terms.Limit == 0 ? ulong.MaxValue : terms.Limit;
        var request =
            new SetScanRequest { Key = key.ToByteString(), Start = terms.Start.ToByteString(), Prefix = terms.Prefix.ToByteString(), Reverse = terms.Reverse };
        for (var isMore = true; isMore && left > 0;)
        {
            request.Limit = (uint)Math.Min(left, 10_000);
            request.Read = _calls.ReadOptionsOf(terms.Read, key.Span);
            var response = SetScanResponse.Parser.ParseFrom(
                await _calls.ReadAsync(Method.SetScan, key, request, request.Read, _calls.TermsOf(terms.Call), cancellationToken).ConfigureAwait(false));
            _calls.See(response.Position);
            foreach (var member in response.Members)
                yield return member.Memory;
            left -= (ulong)response.Members.Count;
            isMore = response.More && response.Members.Count > 0;
            if (isMore)
                request.ResumeAfter = response.Members[^1];
        }
    }

    /// <summary>What several sets of one shard have in common, counted in facets.</summary>
    /// <exception cref="KvShardsDifferException">The sets, or those below a facet prefix, are in several shards.</exception>
    /// <exception cref="KvInvalidRequestException">There are too many sets or facet prefixes, or a limit is too large.</exception>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">Reason ANSWER_TOO_LARGE: the answer has no room. Or it failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<IntersectResult> IntersectAsync(KvIntersection intersection, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(intersection);
        var first = intersection.Keys.Count > 0 ? intersection.Keys[0] : default;
        var request = new SetIntersectRequest
        {
            Keys = { intersection.Keys.Select(static key => key.ToByteString()) },
            Start = intersection.Start.ToByteString(),
            Limit = (uint)intersection.Limit,
            FacetPrefixes = { intersection.FacetPrefixes.Select(static prefix => prefix.ToByteString()) },
            FacetsMax = (uint)intersection.FacetsMax,
            Read = _calls.ReadOptionsOf(intersection.Read, first.Span),
        };
        var response = SetIntersectResponse.Parser.ParseFrom(
            await _calls.ReadAsync(Method.SetIntersect, first, request, request.Read, _calls.TermsOf(intersection.Call), cancellationToken)
                .ConfigureAwait(false));
        return new IntersectResult(
            [.. response.Members.Select(static member => member.Memory)],
            response.More,
            response.Count,
            [.. response.Facets.Select(
                static facets => new FacetsResult([.. facets.Sets.Select(static facet => new FacetResult(facet.Key.Memory, facet.Count))], facets.SetsFound))],
            _calls.See(response.Position));
    }

    private async ValueTask<SetChangeResult> SendRemovalAsync(
        KvKey key, SetRemoveRequest request, KvChangeOptions? options, CancellationToken cancellationToken)
    {
        var response = SetRemoveResponse.Parser.ParseFrom(
            await _calls.ChangeAsync(Method.SetRemove, key, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false));
        return new SetChangeResult(response.Removed, _calls.See(response.Position));
    }
}
