using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Local;

/// <summary>
/// One program of the cluster as a process of its own. It is restarted a second after it died. Its process id is in <c>run/NAME.pid</c>, its output in
/// <c>run/NAME.log</c>. Its standard input is a pipe from this process. However the launcher dies, the pipe ends, and the program stops.
/// </summary>
/// <remarks><see cref="RunAsync"/> is the only loop. It ends when its token is cancelled and the process has ended.</remarks>
internal sealed class Child(string name, string program, IReadOnlyList<string> arguments, string runFolder)
{
    private static readonly TimeSpan RestartDelay = TimeSpan.FromSeconds(1);

    // Within the 5 s that a stop of the whole cluster may take.
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(4);

    private readonly string _pidFile = Path.Combine(runFolder, name + ".pid");
    private readonly string _logFile = Path.Combine(runFolder, name + ".log");

    public string Name => name;

    /// <summary>Keeps the program running until cancelled, then stops it.</summary>
    /// <exception cref="LauncherException">The program cannot be started, or its arguments or its data directory are not usable.</exception>
    public async Task RunAsync(CancellationToken stop)
    {
        using var log = new LogLines(_logFile);
        while (!stop.IsCancellationRequested)
        {
            using var process = Start(log);
            try
            {
                await process.WaitForExitAsync(stop);
            }
            catch (OperationCanceledException)
            {
                await StopAsync(process, log);
                break;
            }

            log.Add($"{Now()} launcher: {name} ({process.Id}) exited with code {process.ExitCode}");
            // A restart would not help. After other exit codes it may: a port, for example, may still be held by the process that died.
            if (process.ExitCode is ExitCodes.Usage or ExitCodes.OtherFormat)
                throw new LauncherException(process.ExitCode, $"{name} cannot start. Its log has the reason: {_logFile}");
            await Task.Delay(RestartDelay, stop).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }

        File.Delete(_pidFile);
    }

    private Process Start(LogLines log)
    {
        var start = new ProcessStartInfo(
            program, arguments) { RedirectStandardInput = true, RedirectStandardOutput = true, RedirectStandardError = true, UseShellExecute = false };
        Process process;
        try
        {
            process = Process.Start(start)!;
        }
        catch (System.ComponentModel.Win32Exception e)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"{program} cannot be started: {e.Message}");
        }

        process.OutputDataReceived += (_, line) => Copy(line.Data);
        process.ErrorDataReceived += (_, line) => Copy(line.Data);
        process.BeginOutputReadLine();
        process.BeginErrorReadLine();
        // Renamed into place, so that readers see a whole number.
        File.WriteAllText(_pidFile + ".new", process.Id.ToString(CultureInfo.InvariantCulture) + "\n");
        File.Move(_pidFile + ".new", _pidFile, overwrite: true);
        log.Add($"{Now()} launcher: {name} started as {process.Id}");
        return process;

        void Copy(string? line)
        {
            if (line is not null)
                log.Add(line);
        }
    }

    private async Task StopAsync(Process process, LogLines log)
    {
        process.StandardInput.Close();
        using var limit = new CancellationTokenSource(StopLimit);
        try
        {
            await process.WaitForExitAsync(limit.Token);
        }
        catch (OperationCanceledException)
        {
            log.Add($"{Now()} launcher: {name} ({process.Id}) did not stop within {StopLimit.TotalSeconds} s and was killed");
            process.Kill();
            await process.WaitForExitAsync(CancellationToken.None);
        }
    }

    private static string Now() => DateTimeOffset.UtcNow.ToString("yyyy-MM-dd HH:mm:ss.fff", CultureInfo.InvariantCulture);
}
