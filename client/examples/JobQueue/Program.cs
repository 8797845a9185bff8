// Orders that get invoices from a queue of jobs: see README.md beside this project.
using System.Globalization;
using KvCluster.Client;
using KvCluster.Examples;

await using var store = new KvClient(Environment.GetEnvironmentVariable("KVCLUSTER_ENDPOINT") ?? "http://127.0.0.1:7400");
var invoices = new Invoices(store);
using var stopping = new CancellationTokenSource();
Console.CancelKeyPress += (_, pressed) =>
{
    pressed.Cancel = true;
    stopping.Cancel();
};
try
{
    switch (args)
    {
        case ["order", var id, var text] when long.TryParse(text, CultureInfo.InvariantCulture, out var cents):
            await invoices.OrderAsync(id, cents, stopping.Token);
            return 0;
        case ["work"]:
            await invoices.WorkAsync(parallel: 4, stopping.Token);
            return 0;
        case ["list"]:
            await foreach (var (number, invoice) in invoices.ListAsync(stopping.Token))
                Console.WriteLine($"{number}\t{invoice}");
            return 0;
        default:
            Console.Error.WriteLine("Usage: JobQueue order ID CENTS  or  JobQueue work  or  JobQueue list");
            return 2;
    }
}
catch (OperationCanceledException)
{
    return 0;
}
catch (KvException failure)
{
    Console.Error.WriteLine(failure.Message);
    return 1;
}
