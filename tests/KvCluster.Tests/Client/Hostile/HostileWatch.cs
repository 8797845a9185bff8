using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// A watch of the part of a shard at a node: the entries, if they are asked for, and then every change after the position that it has come to. It goes on where
/// it stood when its node has recovered.
/// </summary>
internal sealed class HostileWatch(HostileCluster cluster, HostileNode node, WatchRequest request, HostileStream<StreamMessage<WatchResponse>> stream)
{
    private const int EntriesMax = 3;
    private const int ChangesMax = 4;
    private const int BookmarkMs = 400;
    private const int BreaksInOneOf = 12;

    private readonly TextRange _range = new(request.Start.ToStringUtf8(), request.End.ToStringUtf8(), request.Prefix.ToStringUtf8(), "");
    private Etag _position;

    // The key up to which entries were sent; null: all were.
    private string? _through;

    public void Begin() => After(1 + cluster.Random.Next(5), () =>
    {
        if (request.After.FirstOrDefault(position => position.Shard == Route.Shard) is { } after)
            _position = after.Etag.ToEtag();
        else if (!request.Initial)
            _position = Newest;
        else if (request.InitialAfter.FirstOrDefault(progress => progress.Position.Shard == Route.Shard) is { } progress)
            (_position, _through) = (progress.Position.Etag.ToEtag(), progress.Through.ToStringUtf8());
        else
            (_position, _through) = (Newest, "");
        Go();
    });

    private ShardRoute Route => cluster.Model.RouteOf(_range.First);

    private Etag Newest => cluster.Model.PositionOf(Route).Etag.ToEtag();

    // Everything that there is to say, and then again after a while. A node that says nothing now says it later.
    private void Go()
    {
        var isSilent = node.IsCut || node.Watches is Mood.Deaf or Mood.Mute;
        if (node.Watches == Mood.Mixed && cluster.Random.Next(BreaksInOneOf) == 0)
        {
            stream.End(new RpcException(new Status(StatusCode.Unavailable, "the stream was broken by the test")));
            return;
        }
        if (!isSilent)
            stream.Arrive(StreamMessage<WatchResponse>.Of(_through is { } through ? EntriesBehind(through) : Changes(_ => true, ChangesMax)));
        var hasAll = _through is null && _position == LastChange;
        After(1 + cluster.Random.Next(hasAll || isSilent ? BookmarkMs : 20), Go);
    }

    private Etag LastChange => ChangesAfter(_ => true).Select(static change => (Etag?)change.Etag).LastOrDefault() ?? _position;

    // First what has become of the keys that were sent before, then further entries, both as of now.
    private WatchResponse EntriesBehind(string through)
    {
        var message = Changes(key => string.CompareOrdinal(key, through) <= 0, int.MaxValue);
        var entries = cluster.Model.Entries(Route, _range with { After = through }, cluster.Model.Moment);
        message.Events.Add(entries.Take(EntriesMax).Select(static entry => EventOf(entry.Key, entry.State.Etag, entry.State.Value)));
        message.Initial = true;
        (_position, _through) = (Newest, entries.Count > EntriesMax ? entries[EntriesMax - 1].Key : null);
        var position = new Position { Shard = Route.Shard, Etag = _position.ToMessage() };
        if (_through is null)
            (message.Position, message.InitialComplete) = (position, true);
        else
            (message.Position, message.Progress) = (null, new InitialProgress { Position = position, Through = ByteString.CopyFromUtf8(_through) });
        return message;
    }

    private WatchResponse Changes(Func<string, bool> isMeant, int max)
    {
        var changes = ChangesAfter(isMeant).Take(max).ToList();
        if (changes.Count > 0)
            _position = changes[^1].Etag;
        return new WatchResponse
        {
            Position = new Position { Shard = Route.Shard, Etag = _position.ToMessage() },
            Events = { changes.Select(static change => EventOf(change.Key, change.Etag, change.Value)) },
        };
    }

    private IEnumerable<KeyChange> ChangesAfter(Func<string, bool> isMeant)
    {
        var (shard, after) = (Route.Shard, _position);
        return cluster.Model.Changes.Where(change => change.Shard == shard && change.Etag > after && _range.Has(change.Key) && isMeant(change.Key));
    }

    private static Event EventOf(string key, Etag etag, string? value) => new()
    {
        Kind = value is null ? EventKind.Delete : EventKind.Put,
        Reason = EventReason.User,
        Key = ByteString.CopyFromUtf8(key),
        Etag = etag.ToMessage(),
        Value = ByteString.CopyFromUtf8(value ?? ""),
    };

    private void After(long delayMs, Action action) => cluster.Clock.After(delayMs, () =>
    {
        if (node.IsDown)
            stream.End(new RpcException(new Status(StatusCode.Unavailable, "connection refused")));
        else if (!stream.HasEnded)
            action();
    });
}
