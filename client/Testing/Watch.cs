using System.Collections.Immutable;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>What one watch has returned so far. Used under the lock of the store, by the reader of the watch.</summary>
internal sealed class Watch
{
    private const int EntriesPerMessage = 1_000;

    private readonly V1.WatchRequest _request;
    private readonly KeyBounds _bounds;
    private ImmutableSortedDictionary<uint, V1.Position> _positions;
    private uint[] _shards = [];
    private bool _hasBegun;

    /// <exception cref="KvInvalidRequestException">The request is refused.</exception>
    public Watch(KvWatch watch)
    {
        _request = watch.ToMessage();
        RequestChecks.Range(watch.Start, watch.End, watch.Prefix);
        if (watch.IsOneKey && watch.Prefix.IsEmpty)
            throw Refusals.KeyEmpty();
        _bounds = watch.IsOneKey
            ? new KeyBounds(watch.Prefix, (byte[])[.. watch.Prefix.Span, 0])
            : KeyBounds.Of(watch.Start, watch.End, watch.Prefix);
        if (_bounds.IsEmpty)
            throw Refusals.BadRequest("The range of a watch must have room for a key: its end is not after its start.");
        _positions = _request.After.ToImmutableSortedDictionary(static position => position.Shard, static position => position);
    }

    /// <summary>What was not returned yet: nothing if nothing has happened.</summary>
    /// <exception cref="KvException">The watch cannot go on.</exception>
    public IReadOnlyList<KvWatchMessage> Read(IReadOnlyList<Shard> shards, ulong lineage)
    {
        var (messages, isFirst) = (new List<KvWatchMessage>(), !_hasBegun);
        Shard[] watched = [.. shards.Where(shard => shard.Meets(_bounds))];
        if (isFirst)
            Begin(messages, watched, lineage);
        foreach (var shard in watched)
            ReadChanges(messages, shard, lineage);
        // A watch that goes on where nothing has happened since says that it does.
        return isFirst && messages.Count == 0 ? Bookmarks() : messages;
    }

    /// <summary>Says of each shard how far the watch has come.</summary>
    public IReadOnlyList<KvWatchMessage> Bookmarks() =>
        [.. _shards.Select(shard => new KvWatchMessage(_positions[shard].ToPosition(), [], false) { Positions = _positions })];

    private void Begin(List<KvWatchMessage> messages, Shard[] watched, ulong lineage)
    {
        _hasBegun = true;
        _shards = [.. watched.Select(static shard => shard.Id)];
        Shard[] begun = [.. watched.Where(shard => !_positions.ContainsKey(shard.Id))];
        foreach (var shard in watched.Except(begun))
            Check(shard, lineage);
        foreach (var shard in begun)
        {
            if (_request.Initial)
                messages.AddRange(EntriesOf(shard));
            SetPosition(shard.Id, shard.State.Etag, lineage);
        }
        // The token of a watch that begins needs the positions of all shards, so only the last one of these messages has one.
        foreach (var (index, shard) in begun.Index())
            messages.Add(new KvWatchMessage(shard.PositionIn(lineage), [], _request.Initial)
            {
                Positions = index == begun.Length - 1 ? _positions : null,
                IsInitialComplete = _request.Initial && index == begun.Length - 1,
            });
    }

    private IEnumerable<KvWatchMessage> EntriesOf(Shard shard) => shard.State.Within(_bounds)
        .Select(key => new KvEvent(KvEventKind.Put, KvEventReason.User, key.Key, key.Etag) { Value = _request.KeysOnly ? default : key.Value })
        .Chunk(EntriesPerMessage)
        .Select(static entries => new KvWatchMessage(default, entries, true));

    private void ReadChanges(List<KvWatchMessage> messages, Shard shard, ulong lineage)
    {
        var after = _positions[shard.Id].Etag.ToEtag();
        if (after < shard.Oldest)
            throw new KvCompactedException(
                $"The changes of shard {shard.Id} after {after} are not kept any more. Read the keys anew and watch after that, or watch with the entries.",
                new ShardPosition(shard.Id, shard.Oldest) { Lineage = lineage });
        foreach (var change in shard.ChangesAfter(after))
        {
            KvEvent[] events = [.. change.Events.Where(happened => happened.Etag > after && IsWatched(happened)).Select(AsAsked)];
            SetPosition(shard.Id, change.Etag, lineage);
            if (events.Length > 0)
                messages.Add(new KvWatchMessage(_positions[shard.Id].ToPosition(), events, false) { Positions = _positions });
        }
        SetPosition(shard.Id, Etag.Max(after, shard.State.Etag), lineage);
    }

    // A position of another history, or of a future that this one does not have.
    private void Check(Shard shard, ulong lineage)
    {
        var position = _positions[shard.Id];
        if ((position.Lineage != 0 && position.Lineage != lineage) || position.Etag.ToEtag() > shard.State.Etag)
            throw Refusals.LineageChanged();
    }

    private bool IsWatched(KvEvent happened) => happened.Kind switch
    {
        KvEventKind.DeleteRange => Meets(happened.Key, happened.RangeEnd),
        KvEventKind.SetAdd or KvEventKind.SetRemove => _request.WithSets && Contains(happened.Key),
        _ => Contains(happened.Key),
    };

    private bool Contains(KvKey key) =>
        _bounds.Lower.Span.SequenceCompareTo(key.Span) <= 0 && (_bounds.Upper.IsEmpty || key.Span.SequenceCompareTo(_bounds.Upper.Span) < 0);

    private bool Meets(KvKey start, KvKey end) => (end.IsEmpty || end.Span.SequenceCompareTo(_bounds.Lower.Span) > 0)
        && (_bounds.Upper.IsEmpty || start.Span.SequenceCompareTo(_bounds.Upper.Span) < 0);

    private KvEvent AsAsked(KvEvent happened)
    {
        var told = _request.KeysOnly ? happened with { Value = default } : happened;
        return _request.WithPrevious ? told : told with { IsPreviousKnown = false, PreviousEtag = null, PreviousValue = default };
    }

    private void SetPosition(uint shard, Etag etag, ulong lineage) =>
        _positions = _positions.SetItem(shard, new V1.Position { Shard = shard, Etag = etag.ToMessage(), Lineage = lineage });
}
