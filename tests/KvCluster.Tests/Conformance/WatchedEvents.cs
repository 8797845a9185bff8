using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>A watch that has begun, and what it has returned. Used by one test.</summary>
internal sealed class WatchedEvents : IAsyncDisposable
{
    private readonly CancellationTokenSource _limit = new(Eventually.Limit);
    private readonly IAsyncEnumerator<KvWatchMessage> _messages;
    private readonly Queue<KvWatchMessage> _kept = [];

    private WatchedEvents(IKvClient client, KvWatch watch) => _messages = client.WatchAsync(watch, _limit.Token).GetAsyncEnumerator(_limit.Token);

    /// <summary>The token of the last message that had one.</summary>
    public string Token { get; private set; } = "";

    /// <summary>The entries that the watch began with, and changes to them.</summary>
    public IReadOnlyList<KvEvent> Initial { get; private set; } = [];

    /// <summary>Begins to watch. Whatever is changed afterwards is seen.</summary>
    public static async Task<WatchedEvents> BeginAsync(IKvClient client, KvWatch watch)
    {
        var begun = new WatchedEvents(client, watch);
        var initial = new List<KvEvent>();
        while (begun.Token.Length == 0)
        {
            var message = await begun.ReadAsync();
            if (message.IsInitial)
                initial.AddRange(message.Events);
            else if (message.Events.Count > 0)
                begun._kept.Enqueue(message);
        }
        begun.Initial = initial;
        return begun;
    }

    /// <summary>The next message with events.</summary>
    public async Task<KvWatchMessage> NextAsync()
    {
        if (_kept.TryDequeue(out var kept))
            return kept;
        while (true)
        {
            var message = await ReadAsync();
            if (message.Events.Count > 0)
                return message;
        }
    }

    /// <summary>So many events, of one message or several.</summary>
    public async Task<IReadOnlyList<KvEvent>> TakeAsync(int count)
    {
        var events = new List<KvEvent>();
        while (events.Count < count)
            events.AddRange((await NextAsync()).Events);
        Assert.Equal(count, events.Count);
        return events;
    }

    public async ValueTask DisposeAsync()
    {
        await _messages.DisposeAsync();
        _limit.Dispose();
    }

    private async Task<KvWatchMessage> ReadAsync()
    {
        Assert.True(await _messages.MoveNextAsync());
        Token = _messages.Current.Token ?? Token;
        return _messages.Current;
    }
}
