namespace KvCluster.Cli;

/// <summary>Ends a command with one line for the person and an exit code for the script.</summary>
internal sealed class CliException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}

/// <summary>The person stopped waiting for an operation.</summary>
internal sealed class OperationGoesOnException(string id)
    : Exception($"interrupted; operation {id} goes on. kv admin operations shows it, and kv admin cancel {id} ends it");

/// <summary>Standard output cannot be written: its reader is gone, or the disk is full.</summary>
internal sealed class OutputClosedException(IOException cause) : IOException($"standard output: {cause.Message}", cause)
{
    /// <summary>Whether it is a pipe that nobody reads any more.</summary>
    public bool ReaderIsGone { get; } = cause is ReaderGoneException;
}

/// <summary>A pipe was written that nobody reads any more.</summary>
internal sealed class ReaderGoneException() : IOException("its reader is gone");
