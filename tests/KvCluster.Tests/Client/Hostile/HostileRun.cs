using KvCluster.Client;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// A program with the real library beside a <see cref="HostileCluster"/>: callers, perhaps a watcher, and clients that are closed while their calls are in
/// progress. Each call must end within a tenth of a second after its deadline, be applied as its outcome says, and have been answered with what was so at some
/// moment of it. A seed always takes the same course: what the library waits for is the clock or an answer, and it goes on in the step that brings it.
/// </summary>
internal sealed class HostileRun
{
    private const int LoadMs = 6_000;
    private const int CalmMs = 4_000;
    private const int LateMsMax = 100;
    private const int GivesUpInOneOf = 6;
    private const int Callers = 8;
    private static readonly TimeSpan ClientTimeout = TimeSpan.FromSeconds(2);
    private static readonly TimeSpan LastTimeout = TimeSpan.FromSeconds(5);

    private readonly List<HostileOperation> _open = [];
    private readonly Dictionary<KvClient, HostileLinks> _clients = [];
    private readonly HashSet<KvClient> _closed = [];
    private readonly List<HostileCaller> _callers;
    private readonly HostileWatcher? _watcher;
    private readonly int _thread = Environment.CurrentManagedThreadId;
    private readonly bool _isIdentified;
    private string? _failure;
    private bool _isGivingUp;
    private long _ids;

    public HostileRun(Random random, HostileTally tally)
    {
        (Random, Tally) = (random, tally);
        Clock = new HostileClock(random);
        var mayDivide = random.Next(2) == 0;
        Cluster = new HostileCluster(Clock, random, isRouted: random.Next(4) == 0, mayDivide);
        _isIdentified = random.Next(4) != 0;
        _callers = [.. Enumerable.Range(1, Callers).Select(number => new HostileCaller(this, number))];
        // The parts of a watch are those of the map with which it begins, and a router merges them by itself.
        _watcher = mayDivide || Cluster.IsRouted ? null : new HostileWatcher(this);
        Client = Connect();
    }

    public Random Random { get; }

    public HostileTally Tally { get; }

    public HostileClock Clock { get; }

    public HostileCluster Cluster { get; }

    public HostileModel Model => Cluster.Model;

    /// <summary>The client that is in use.</summary>
    public KvClient Client { get; private set; }

    /// <summary>No further calls are to be made.</summary>
    public bool IsOver { get; private set; }

    public void Run()
    {
        Cluster.Begin();
        foreach (var caller in _callers)
            caller.Start();
        _watcher?.Start();
        Clock.After(LoadMs / 4 + Random.Next(LoadMs / 2), Replace);
        PassFor(LoadMs);
        IsOver = true;
        Cluster.Calm();
        PassFor(CalmMs);
        Begin("the last reads", LastTimeout, _callers[0].ReadAllAsync, static () => { });
        PassFor((int)LastTimeout.TotalMilliseconds + LateMsMax);
        _watcher?.Stop();
        Close(Client);
        PassFor(1);
        Unless(_open.Count == 0, () => $"calls are open: {string.Join("; ", _open)}");
        foreach (var (client, links) in _clients)
            Unless(_closed.Contains(client) && links.Open == 0, () => $"a client that was closed has left {links.Open} connections open");
        foreach (var caller in _callers)
            caller.Check();
        _watcher?.Check();
        ThrowIfFailed();
        Tally.Runs++;
    }

    public long NextId() => ++_ids;

    public bool IsClosed(KvClient client) => _closed.Contains(client);

    /// <summary>Makes a call, which its caller may give up, and then does something, in the step in which the call has ended.</summary>
    public void Begin(string what, TimeSpan timeout, Func<HostileOperation, Task> call, Action then)
    {
        var operation = new HostileOperation(Clock, what, timeout, Model.NextMoment());
        _open.Add(operation);
        if (!IsOver && Random.Next(GivesUpInOneOf) == 0)
            Clock.After(Random.Next((int)timeout.TotalMilliseconds), () => GiveUp(operation));
        operation.Ending = ExecuteAsync(operation, call, then);
    }

    /// <summary>Waits in the time of the run.</summary>
    public Task PauseAsync(int delayMs, CancellationToken cancellationToken)
    {
        var pause = new TaskCompletionSource();
        Clock.After(delayMs, pause.SetResult);
        return pause.Task.WaitAsync(cancellationToken);
    }

    public void Unless(bool holds, Func<string> story)
    {
        if (!holds)
            _failure ??= $"{Clock.NowMs} ms: {story()}";
    }

    public void Fail(string story) => Unless(false, () => story);

    private KvClient Connect()
    {
        var links = Cluster.Link();
        var options = new KvClientOptions
        {
            Endpoints = [.. Cluster.Nodes.Select(static node => node.Address)],
            Gateway = Cluster.IsRouted,
            ExactlyOnce = _isIdentified,
            Timeout = ClientTimeout,
        };
        var client = new KvClient(options, links, Clock.Runtime);
        _clients.Add(client, links);
        return client;
    }

    private async Task ExecuteAsync(HostileOperation operation, Func<HostileOperation, Task> call, Action then)
    {
        try
        {
            await operation.RunAsync(call);
        }
        catch (Exception failure)
        {
            Fail($"{operation} ended with {failure}");
        }
        Unless(_isGivingUp || Environment.CurrentManagedThreadId == _thread, () => $"{operation} goes on on another thread");
        operation.HasEnded = true;
        _open.Remove(operation);
        then();
    }

    // A pause of the library's retries that is cancelled goes on on the thread pool, as every cancelled delay does, perhaps before the cancellation returns.
    // So this thread does nothing else until the call has ended.
    private void GiveUp(HostileOperation operation)
    {
        if (operation.HasEnded)
            return;
        _isGivingUp = true;
        operation.GivesUp.Cancel();
        Await(operation.Ending, $"{operation} was given up");
        _isGivingUp = false;
    }

    // Whoever uses the present client begins with another one, and what is in progress fails.
    private void Replace()
    {
        if (IsOver)
            return;
        Tally.ClosedInProgress += _open.Count > 0 ? 1 : 0;
        var client = Client;
        Client = Connect();
        Close(client);
        Clock.After(LoadMs / 4 + Random.Next(LoadMs / 2), Replace);
    }

    private void Close(KvClient client)
    {
        _closed.Add(client);
        if (Random.Next(2) == 0)
            client.Dispose();
        Await(client.DisposeAsync().AsTask(), "a client was closed");
    }

    // Without the clock, because it must end at once.
    private void Await(Task task, string story) => Unless(task.Wait(Eventually.Limit), () => $"{story} and has not ended");

    private void PassFor(int timeMs)
    {
        for (var passedMs = 0; passedMs < timeMs; passedMs++)
        {
            Clock.Pass();
            foreach (var operation in _open)
                Unless(Clock.NowMs - LateMsMax <= operation.DeadlineMs, () => $"{operation} has not ended");
            ThrowIfFailed();
        }
    }

    private void ThrowIfFailed()
    {
        if (_failure is not null)
            Assert.Fail(_failure);
    }
}
