using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using System.Text;

namespace KvCluster.Processes;

/// <summary>
/// The connectivity of a cluster. Every connection to a node or to a member of etcd goes through a <see cref="Relay"/>, which asks here. A cut
/// connection loses no data and is not closed: bytes stay where they are until it is healed, as behind a dead switch. Thread-safe.
/// </summary>
internal sealed class Network
{
    /// <summary>All processes that are not nodes: clients of the cluster.</summary>
    public const int Clients = 0;

    /// <summary>All members of etcd.</summary>
    public const int Etcd = -1;

    private readonly Lock _gate = new();
    private readonly Lock _starts = new();
    private readonly ConcurrentDictionary<int, int> _nodesByProcess = new();
    private readonly HashSet<(int From, int To)> _cut = [];
    private readonly Dictionary<(int From, int To), TimeSpan> _delays = [];
    private (int From, int To, byte[] Text)? _lastHeard;
    private long _frames;
    private TaskCompletionSource _changed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>Tells which process is a node, so that its connections are recognized by their owner.</summary>
    public void SetProcess(int node, int process) => _nodesByProcess[process] = node;

    /// <summary>
    /// Starts a node's process, of whose connections none is looked at before it is known. Those that a fast start opens while this process stalls would
    /// otherwise count as a client's for ever, and no cut would stop them.
    /// </summary>
    public Process Start(int node, ProcessStartInfo start)
    {
        lock (_starts)
        {
            var process = Process.Start(start)!;
            SetProcess(node, process.Id);
            return process;
        }
    }

    /// <summary>Stops all traffic between the two.</summary>
    public void Cut(int one, int other) => Change(() => _cut.UnionWith([(one, other), (other, one)]));

    /// <summary>Stops the traffic in one direction only.</summary>
    public void CutOneWay(int from, int to) => Change(() => _cut.Add((from, to)));

    /// <summary>
    /// Passes on what one side sends until it contains a text. That still arrives, but its answer does not, because the way back is cut from then on.
    /// </summary>
    public void CutAnswerTo(int from, int to, string text) => Change(() => _lastHeard = (from, to, Encoding.UTF8.GetBytes(text)));

    /// <summary>Delays every piece of data between the two.</summary>
    public void Delay(int one, int other, TimeSpan delay) => Change(() => _delays[(one, other)] = _delays[(other, one)] = delay);

    /// <summary>Restores the initial state.</summary>
    public void Heal() => Change(() =>
    {
        _cut.Clear();
        _delays.Clear();
        _lastHeard = null;
    });

    /// <summary>Called with every piece of data before it is passed on.</summary>
    public void Hear(int from, int to, ReadOnlySpan<byte> bytes)
    {
        lock (_gate)
        {
            if (_lastHeard is not { } last || last.From != from || last.To != to || bytes.IndexOf(last.Text) < 0)
                return;
            _lastHeard = null;
            _cut.Add((to, from));
        }
    }

    /// <summary>The number of HTTP/2 DATA frames between nodes so far.</summary>
    public long Frames => Volatile.Read(ref _frames);

    public void CountFrames(int count) => Interlocked.Add(ref _frames, count);

    /// <summary>Returns when data may pass.</summary>
    public async Task PassAsync(int from, int to, CancellationToken cancellationToken)
    {
        while (true)
        {
            Task changed;
            TimeSpan delay;
            bool isCut;
            lock (_gate)
            {
                (changed, isCut) = (_changed.Task, _cut.Contains((from, to)));
                delay = _delays.GetValueOrDefault((from, to));
            }

            if (!isCut)
            {
                if (delay > TimeSpan.Zero)
                    await Task.Delay(delay, cancellationToken);
                return;
            }

            await changed.WaitAsync(cancellationToken);
        }
    }

    /// <summary>The node that opened a connection on loopback, found by the process that holds the socket.</summary>
    public int SourceOf(int port, int relayPort)
    {
        var inode = new[] { "/proc/net/tcp", "/proc/net/tcp6" }.Select(file => InodeOf(file, port, relayPort)).FirstOrDefault(found => found is not null);
        if (inode is null)
            return Clients;
        var link = $"socket:[{inode}]";
        KeyValuePair<int, int>[] known;
        lock (_starts)
            known = [.. _nodesByProcess];
        foreach (var (process, node) in known)
            if (Holds(process, link))
                return node;
        return Clients;
    }

    private static string? InodeOf(string file, int port, int relayPort)
    {
        var (local, remote) = (Ending(port), Ending(relayPort));
        foreach (var line in File.ReadLines(file).Skip(1))
        {
            var fields = line.Split(' ', StringSplitOptions.RemoveEmptyEntries);
            if (fields[1].EndsWith(local, StringComparison.Ordinal) && fields[2].EndsWith(remote, StringComparison.Ordinal))
                return fields[9];
        }

        return null;
    }

    private static bool Holds(int process, string link)
    {
        try
        {
            return Directory.EnumerateFiles($"/proc/{process.ToString(CultureInfo.InvariantCulture)}/fd")
                .Any(descriptor => new FileInfo(descriptor).LinkTarget == link);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // The process ended, so it does not own a connection that is being opened.
            return false;
        }
    }

    private static string Ending(int port) => ":" + port.ToString("X4", CultureInfo.InvariantCulture);

    private void Change(Action change)
    {
        TaskCompletionSource changed;
        lock (_gate)
        {
            change();
            changed = _changed;
            _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        }

        changed.SetResult();
    }
}
