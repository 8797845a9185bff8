// What the machine takes from everything that runs on it. Tests and scripts judge the pauses of callers by it instead of by the clock alone: a machine that has
// no processor, or no disk, for half a second has none for the loop either. Beside tests in their own process; for scripts as a command of the benchmarks. The
// loop has a thread of its own. An exception there ends the process, because nothing could be judged any more.
using System.Diagnostics;
using System.Net;
using System.Net.Sockets;

namespace KvCluster.Processes;

/// <summary>
/// A loop of what a call costs without a store: it rests for ten milliseconds, sends a message over TCP to itself and gets it back, and writes a block of a
/// file that it syncs. What a round takes longer than the fastest one is lost. Disposing ends it.
/// </summary>
internal sealed class BareLoop : IDisposable
{
    private const int MessageBytes = 64;
    private const int BlockBytes = 4096;

    private static readonly TimeSpan Rest = TimeSpan.FromMilliseconds(10);

    private readonly Lock _gate = new();
    private readonly Action<TimeSpan> _told;
    private readonly string _path;
    private readonly FileStream _file;
    private readonly Socket _caller = NewSocket();
    private readonly Socket _server;
    private readonly Thread _looping;
    private readonly Thread _answering;
    private volatile bool _ends;
    private TimeSpan _fastest = TimeSpan.MaxValue;
    private TimeSpan _total;
    private long _rounds;
    private long _roundBegan;

    /// <summary>Starts it.</summary>
    /// <param name="folder">A directory on the disk that is meant; the loop writes one file there.</param>
    /// <param name="told">Gets the length of each round, on the loop's thread.</param>
    public BareLoop(string folder, Action<TimeSpan>? told = null)
    {
        _told = told ?? (static _ => { });
        _path = Path.Combine(folder, "bare-loop");
        _file = new FileStream(_path, FileMode.Create, FileAccess.Write, FileShare.None, bufferSize: 0);
        using (var listening = NewSocket())
        {
            listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
            listening.Listen(1);
            _caller.Connect(listening.LocalEndPoint!);
            _server = listening.Accept();
        }
        _server.NoDelay = true;
        _roundBegan = Stopwatch.GetTimestamp();
        _answering = new Thread(Answer) { IsBackground = true, Name = "bare loop, echo" };
        _looping = new Thread(Run) { IsBackground = true, Name = "bare loop" };
        _answering.Start();
        _looping.Start();
    }

    /// <summary>What it has lost so far, with the round in progress. Any thread.</summary>
    public TimeSpan Lost
    {
        get
        {
            lock (_gate)
            {
                if (_rounds == 0)
                    return TimeSpan.Zero;
                var late = Stopwatch.GetElapsedTime(_roundBegan) - _fastest;
                return _total - (_fastest * _rounds) + (late > TimeSpan.Zero ? late : TimeSpan.Zero);
            }
        }
    }

    public void Dispose()
    {
        _ends = true;
        _looping.Join();
        // The echo then reads the end.
        _caller.Dispose();
        _answering.Join();
        _server.Dispose();
        _file.Dispose();
        File.Delete(_path);
    }

    private static Socket NewSocket() => new(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };

    private void Run()
    {
        var (message, block) = (new byte[MessageBytes], new byte[BlockBytes]);
        while (!_ends)
        {
            Thread.Sleep(Rest);
            _caller.Send(message);
            for (var received = 0; received < MessageBytes;)
                received += _caller.Receive(message, received, MessageBytes - received, SocketFlags.None);
            _file.Position = 0;
            _file.Write(block);
            _file.Flush(flushToDisk: true);
            _told(Count());
        }
    }

    private TimeSpan Count()
    {
        lock (_gate)
        {
            var now = Stopwatch.GetTimestamp();
            var took = Stopwatch.GetElapsedTime(_roundBegan, now);
            _roundBegan = now;
            _rounds++;
            _total += took;
            if (took < _fastest)
                _fastest = took;
            return took;
        }
    }

    private void Answer()
    {
        var message = new byte[MessageBytes];
        while (_server.Receive(message) is > 0 and var received)
            _server.Send(message, received, SocketFlags.None);
    }
}
