// An inventory whose orders take several goods at once: see README.md beside this project.
using System.Globalization;
using KvCluster.Client;
using KvCluster.Examples;

await using var store = new KvClient(Environment.GetEnvironmentVariable("KVCLUSTER_ENDPOINT") ?? "http://127.0.0.1:7400");
var stock = new Stock(store);
try
{
    switch (args)
    {
        case ["add", var good, var count] when long.TryParse(count, CultureInfo.InvariantCulture, out var number):
            Console.WriteLine($"{await stock.AddAsync(good, number)} {good}");
            return 0;
        case ["order", var id, .. { Length: > 0 } goods]:
            var isTaken = await stock.OrderAsync(id, goods.CountBy(static good => good).ToDictionary(static good => good.Key, static good => (long)good.Value));
            Console.WriteLine(isTaken ? $"order {id} is taken" : "There is too little of something. Nothing was taken.");
            return isTaken ? 0 : 1;
        case ["list"]:
            await foreach (var (good, count) in stock.ListAsync())
                Console.WriteLine($"{count} {good}");
            return 0;
        default:
            Console.Error.WriteLine("Usage: Inventory add GOOD COUNT  or  Inventory order ID GOOD...  or  Inventory list");
            return 2;
    }
}
catch (KvException failure)
{
    Console.Error.WriteLine(failure.Message);
    return 1;
}
