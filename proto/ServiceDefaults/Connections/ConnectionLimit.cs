// Limits the connections of one listener. Runs on Kestrel's threads. At the limit the oldest connection on which no call has come yet is closed to make room
// for the new one, so thousands of idle connections keep nobody out. If all are in use, the new one is closed. A host may have at most three quarters of the
// places, and the same rule applies within them, so that no host can keep the others out. A connection has its place until its transport is closed, and not
// until Kestrel's task of it has ended, because some of those tasks never end: when a caller resets many calls, Kestrel's queue of responses overflows,
// Kestrel drops what does not fit and aborts the connection, and then waits for the streams that it has dropped (dotnet/aspnetcore, issue 51307). Such a task
// is left to the garbage collector, which finds nothing that refers to it once Kestrel has been told that the connection is over.
using System.Net;
using KvCluster.ServiceDefaults.Calls;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>Lets a limited number of connections in at a time.</summary>
/// <param name="connectionsMax">The maximum for all hosts together.</param>
/// <param name="log">Gets messages about refused connections.</param>
/// <param name="time">Limits how often these are logged.</param>
/// <param name="left">Gets the tasks of connections that have ended; null: <see cref="Left"/>.</param>
internal sealed partial class ConnectionLimit(int connectionsMax, ILogger log, TimeProvider time, LeftTasks? left = null)
{
    private static readonly TimeSpan SilentTime = TimeSpan.FromMinutes(1);

    /// <summary>
    /// For what is in progress when the other side closes the connection. Nobody can read an answer then, but mostly everything ends by itself.
    /// </summary>
    private static readonly TimeSpan CloseTime = TimeSpan.FromSeconds(1);

    /// <summary>
    /// How long the task of a closed connection is waited for. Handlers end at once when their caller has gone (<see cref="Memory.AbandonedWork"/>).
    /// </summary>
    private static readonly TimeSpan TaskTime = TimeSpan.FromSeconds(10);

    private readonly int _ofHostMax = connectionsMax - (connectionsMax / 4);
    private readonly Lock _gate = new();
    private readonly LinkedList<Use> _unused = [];
    private readonly Dictionary<IPAddress, Host> _hosts = [];
    private int _count;
    private Said _refused;
    private Said _ended;

    /// <summary>The tasks of connections that have ended, of all listeners of the process.</summary>
    public static LeftTasks Left { get; } = new();

    /// <summary>Adds the limit to a listener, before its other middleware.</summary>
    public void Guard(ListenOptions listen) => listen.Use(next => connection => RunAsync(next, connection));

    private async Task RunAsync(ConnectionDelegate next, ConnectionContext connection)
    {
        var use = new Use(this, connection, RemoteHost.Of(connection.RemoteEndPoint));
        if (!TryEnter(use, out var isHostFull))
        {
            TellRefused(use.Address, isHostFull);
            connection.Abort(new ConnectionAbortedException("The server has reached its limit of connections."));
            return;
        }
        try
        {
            connection.Features.Set<IConnectionUseFeature>(use);
            await ServeAsync(next(connection), use).ConfigureAwait(false);
        }
        finally
        {
            Leave(use);
        }
    }

    // Ends with the connection's task, or some time after the connection.
    private async Task ServeAsync(Task serving, Use use)
    {
        await serving.WaitAsync(use.Connection.ConnectionClosed).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (!await EndsWithinAsync(serving, CloseTime).ConfigureAwait(false))
        {
            // The other side may have closed its direction only. No protocol of these listeners goes on after that.
            use.Connection.Abort(new ConnectionAbortedException("The connection was closed by the other side."));
            Leave(use);
            if (!await EndsWithinAsync(serving, TaskTime).ConfigureAwait(false))
            {
                (left ?? Left).Add(serving);
                return;
            }
        }
        await serving.ConfigureAwait(false);
    }

    private async Task<bool> EndsWithinAsync(Task serving, TimeSpan limit)
    {
        if (!serving.IsCompleted)
            await serving.WaitAsync(limit, time).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return serving.IsCompleted;
    }

    private bool TryEnter(Use use, out bool isHostFull)
    {
        Use? given;
        lock (_gate)
        {
            var host = _hosts.GetValueOrDefault(use.Address);
            isHostFull = host is not null && host.Count >= _ofHostMax;
            var isFull = isHostFull || _count >= connectionsMax;
            given = isHostFull ? host!.Unused.First?.Value : isFull ? _unused.First?.Value : null;
            if (isFull && given is null)
                return false;
            // A connection that is given up is not counted any more, though closing it may take some moments.
            if (given is not null)
                LeaveLocked(given);
            EnterLocked(use);
        }
        given?.Connection.Abort(new ConnectionAbortedException("The connection was not in use, and the server has reached its limit of connections."));
        return true;
    }

    private void EnterLocked(Use use)
    {
        Invariant.CheckHeld(_gate);
        if (!_hosts.TryGetValue(use.Address, out var host))
            _hosts[use.Address] = host = new Host();
        host.Count++;
        _count++;
        use.Host = host;
        use.Place = _unused.AddLast(use);
        use.PlaceOfHost = host.Unused.AddLast(use);
    }

    private void Leave(Use use)
    {
        lock (_gate)
            LeaveLocked(use);
    }

    private void LeaveLocked(Use use)
    {
        Invariant.CheckHeld(_gate);
        UnlistLocked(use);
        if (use.Host is not { } host)
            return;
        use.Host = null;
        _count--;
        if (--host.Count == 0)
            _hosts.Remove(use.Address);
    }

    private void UnlistLocked(Use use)
    {
        Invariant.CheckHeld(_gate);
        if (use.Place is { } place)
        {
            _unused.Remove(place);
            use.Host!.Unused.Remove(use.PlaceOfHost!);
        }
        use.Place = use.PlaceOfHost = null;
    }

    // At most once a minute for all hosts, because thousands of hosts must not fill the log either.
    private void TellRefused(IPAddress address, bool isHostFull)
    {
        if (CountToSay(ref _refused) is not { } refused)
            return;
        if (isHostFull)
            TellHostFull(log, refused, RemoteHost.NameOf(address), _ofHostMax, connectionsMax);
        else
            TellFull(log, refused, RemoteHost.NameOf(address), connectionsMax);
    }

    // The number of events to report; null if it is too early to log again.
    private int? CountToSay(ref Said said)
    {
        lock (_gate)
        {
            said.Count++;
            if (said.At is { } at && time.GetElapsedTime(at) < SilentTime)
                return null;
            var count = said.Count;
            said = new Said { At = time.GetTimestamp() };
            return count;
        }
    }

    // Sends a GOAWAY: the caller makes its next calls on another connection, and those that are open here are still answered.
    private void TakeNoMore(Use use)
    {
        use.Connection.Features.Get<IConnectionLifetimeNotificationFeature>()?.RequestClose();
        if (CountToSay(ref _ended) is { } ended)
            TellEnded(log, ended, RemoteHost.NameOf(use.Address), OpenCallLimit.RefusedInRowMax);
    }

    private static void End(Use use) => use.Connection.Abort(new ConnectionAbortedException("The connection continued to make calls that were refused."));

    [LoggerMessage(1, LogLevel.Warning, "Refused {Count} connections since the last such message, most recently one from {Host}. "
        + "{OfHostMax} connections from there are open, the most that one host may have of {ConnectionsMax}. "
        + "Have it open fewer, or raise connections-max")]
    private static partial void TellHostFull(ILogger log, int count, string host, int ofHostMax, int connectionsMax);

    [LoggerMessage(2, LogLevel.Warning, "Refused {Count} connections since the last such message, most recently one from {Host}. "
        + "All {ConnectionsMax} connections are in use. Have clients open fewer, or raise connections-max")]
    private static partial void TellFull(ILogger log, int count, string host, int connectionsMax);

    [LoggerMessage(3, LogLevel.Warning, "Closed {Count} connections since the last such message, most recently one from {Host}. "
        + "{Refusals} of its calls in a row were refused because too many calls were open. Its open calls continue. "
        + "Have callers open fewer calls and wait before they try again, or raise call-memory-mib")]
    private static partial void TellEnded(ILogger log, int count, string host, int refusals);

    private void MarkUsed(Use use)
    {
        lock (_gate)
            UnlistLocked(use);
    }

    /// <summary>A kind of event that is logged at intervals.</summary>
    private struct Said
    {
        public int Count { get; set; }

        public long? At { get; set; }
    }

    private sealed class Host
    {
        public int Count { get; set; }

        public LinkedList<Use> Unused { get; } = [];
    }

    private sealed class Use(ConnectionLimit limit, ConnectionContext connection, IPAddress address) : IConnectionUseFeature
    {
        public ConnectionContext Connection { get; } = connection;

        /// <summary>The host's IPv4 address or IPv6 network.</summary>
        public IPAddress Address { get; } = address;

        /// <summary>The host that it is counted for; null if it is not counted, or not any more.</summary>
        public Host? Host { get; set; }

        /// <summary>Its place in the list of unused connections; null if it is used or not counted.</summary>
        public LinkedListNode<Use>? Place { get; set; }

        /// <summary>Its place in its host's list of unused connections.</summary>
        public LinkedListNode<Use>? PlaceOfHost { get; set; }

        public ConnectionCalls Calls { get; } = new();

        public void TakeNoMore() => limit.TakeNoMore(this);

        public void End() => ConnectionLimit.End(this);

        public void MarkUsed()
        {
            if (Volatile.Read(ref _isUsed))
                return;
            Volatile.Write(ref _isUsed, true);
            limit.MarkUsed(this);
        }

        private bool _isUsed;
    }
}
